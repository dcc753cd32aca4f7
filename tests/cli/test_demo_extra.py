"""The README's commands for a finished run need nothing that the extra `demo` does not bring."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fedse

ROOT = Path(__file__).parents[2]
BROUGHT = {"model", "plots", "babyai", "webshop"}
MODULES = {
    "secure": "cryptography",
    "dp": "dp_accounting",
    "flower": "flwr",
    "api": "openai",
    "parquet": "pyarrow",
    "smollm2": "gguf",
    "textcraft": "textcraft",
    "tensorboard": "tensorboardX",
    "trackio": "trackio",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "openenv": "websockets",
    "mcp": "mcp",
    "quantized": "bitsandbytes",
    "textarena": "textarena",
    "reasoning-gym": "reasoning_gym",
}
"""What would be imported of each other extra."""
PROGRAM = """
import sys
for name in {modules!r}:
    sys.modules[name] = None
sys.argv = ["fedse", *{arguments!r}]
from fedse.cli import main
main()
"""
VIEWED = """
import sys
for name in {modules!r}:
    sys.modules[name] = None
from pathlib import Path
from fedse.cli.view import _shown
print(_shown(Path({run!r}), False).name)
"""


def test_every_other_extra_is_left_out_here() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["demo"] == ["fedse[model,plots,babyai,webshop]"]
    assert extras.keys() - BROUGHT - {"demo", "all", "dev", "docs"} == MODULES.keys()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    table = dict.fromkeys(("model", "policy", "learner"), "table")
    sizes = {"start": {"tasks": 1}, "exploration": {"tasks": 2}, "evaluation": {"tasks": 2, "test_tasks": 0}}
    clients = {"east": {"worlds": [{"name": "maze", "mode": "original"}]}}
    for seed in (1, 0):
        experiment = {"name": f"small-{seed}", "seed": seed, "rounds": 1, "clients": clients, **table, **sizes}
        finished = fedse.run(experiment, folder, verbose=False)
    return finished.folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [("show", "small"), ("report", "Wrote report.html"), ("compare", "Picture: drawn.png"), ("view", "small")],
)
def test_a_run_can_be_looked_at(command: str, said: str, run: Path, tmp_path: Path) -> None:
    modules = sorted(MODULES.values())
    extra = {"report": ["-o", "report.html"], "compare": [str(run.with_name("small-1")), "--picture", "drawn.png"]}
    arguments = [command, str(run), *extra.get(command, [])]
    program = PROGRAM.format(modules=modules, arguments=arguments)
    if command == "view":  # It would go on until it is interrupted.
        program = VIEWED.format(modules=modules, run=str(run))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
