"""`fedse doctor`: what is installed, what works, and the command that mends what does not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from fedse import __version__
from fedse.cli.console import VisibleConsole
from fedse.errors import how_to_install

EXTRAS = {
    "torch": ("model", "language models"),
    "transformers": ("model", "language models"),
    "peft": ("model", "LoRA adapters"),
    "openai": ("api", "models behind a server"),
    "gguf": ("smollm2", "pulling the model smollm2"),
    "matplotlib": ("plots", "the picture at the end of a run"),
    "pyarrow": ("parquet", "export to Parquet"),
    "minigrid": ("babyai", "the world BabyAI"),
    "textcraft": ("textcraft", "TextCraft with the original's recipes"),
    "rapidfuzz": ("webshop", "the world WebShop"),
    "cryptography": ("secure", "secure sums"),
    "dp-accounting": ("dp", "learning under noise: dp_imitation, dp_fedavg, dp_sum"),
}
"""What `all` installs: library, extra, what for."""
FURTHER = {
    "flwr": ("flower", "federations over several machines"),
    "tensorboardX": ("tensorboard", "the tracker tensorboard"),
    "trackio": ("trackio", "the tracker trackio"),
    "wandb": ("wandb", "the tracker wandb"),
    "mlflow": ("mlflow", "the tracker mlflow"),
    "bitsandbytes": ("quantized", "base models in 8 or 4 bits"),
    "websockets": ("openenv", "OpenEnv's worlds, and serving one"),
    "mcp": ("mcp", "tools of MCP servers as a world"),
    "textarena": ("textarena", "TextArena's games"),
    "reasoning-gym": ("reasoning-gym", "Reasoning Gym's tasks"),
}
"""What `all` leaves out, and most people do not need."""
CORE = ("numpy", "safetensors", "pydantic", "PyYAML", "typer", "rich", "gymnasium")


@dataclass(frozen=True)
class Finding:
    what: str
    state: str
    mend: str = ""
    optional: bool = False


def doctor() -> None:
    """Report versions and devices, and what is missing, with the command that fixes it."""
    console = VisibleConsole()
    console.print("Trying out what is installed")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    wrong = 0
    for finding in examine():
        mended = bool(finding.mend) and not finding.optional
        wrong += mended
        sign = "[yellow]![/]" if mended else "-" if finding.mend else "[green]ok[/]"
        table.add_row(sign, finding.what, finding.state)
        if finding.mend:
            table.add_row("", "", Text(finding.mend, style="yellow" if mended else "dim"))
    console.print(table)
    console.print("Everything works." if not wrong else f"What can be mended: {wrong}.")


def examine() -> Iterator[Finding]:
    yield Finding("fedse", __version__)
    yield Finding("python", f"{platform.python_version()} at {Path(sys.executable).name}, {platform.machine()}")
    yield Finding("cores, memory", f"{os.cpu_count()} cores{_memory()}")
    for name in CORE:
        yield Finding(name, importlib.metadata.version(name))
    for name, (extra, purpose) in EXTRAS.items():
        yield _library(name, extra, f"missing, needed for {purpose}")
    for name, (extra, purpose) in FURTHER.items():
        yield replace(_library(name, extra, f"not installed; for {purpose}"), optional=True)
    yield from _fence()
    yield from _devices()
    free = shutil.disk_usage(Path.cwd()).free
    mend = "free some space, or give `--runs` a folder on another disk" if free < 1e9 else ""
    yield Finding("disk here", f"{free / 1e9:.1f} GB free", mend)
    if not os.access(Path.cwd(), os.W_OK):
        yield Finding(
            "this folder", "cannot be written to", "change to a folder of yours, or use `fedse run --runs DIR`"
        )


def _library(name: str, extra: str, otherwise: str) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, otherwise, how_to_install(extra))


def _fence() -> Iterator[Finding]:
    if importlib.util.find_spec("flwr") is None:
        return
    from fedse.apps.fence import find_nginx

    if (nginx := find_nginx()) is not None:
        yield Finding("nginx", nginx)
    else:
        mend = "install it with your system's packages (Debian: apt-get install nginx-light)"
        yield Finding("nginx", "not installed; for `fedse hub run`, as the fence of a hub", mend, optional=True)


def _memory() -> str:
    try:
        return f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (ValueError, AttributeError):
        return ""


def _devices() -> Iterator[Finding]:
    try:
        import torch
    except ImportError:
        return
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(number).total_memory / 2**30
            yield Finding(f"cuda:{number}", f"{torch.cuda.get_device_name(number)}, {memory:.0f} GiB")
        return
    yield Finding("device", "cpu (no GPU that torch can use)")
    packages = sorted(
        name
        for distribution in importlib.metadata.distributions()
        if (name := str(distribution.metadata["Name"]).lower()).startswith(("nvidia-", "cuda-"))
    )
    if packages:
        yield Finding(
            "CUDA packages",
            f"{len(packages)} installed on a machine without a GPU (e.g. {packages[0]}), several GB for nothing",
            f"pip uninstall -y {' '.join(packages)}; then install torch's CPU build (see the README, Install)",
        )
