"""README.md beside an exported adapter or model: what it is, of what it was made, and how well it did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedse import __version__

if TYPE_CHECKING:
    from fedse.runs.reading import RunView

NAME = "README.md"
BASE = "base"
"""Folder beside an adapter with its base, where no hub has that."""


@dataclass(frozen=True)
class Exported:
    """What was taken out of a run."""

    what: str
    """`adapter` or `merged`."""
    run: RunView
    round: int
    client: str
    base: str
    """The base model's name, or its path; empty where there is none."""
    base_beside: bool
    """Whether the base was written into the folder too."""
    folder: str
    """Name of the folder."""


def model_card(exported: Exported) -> str:
    """Markdown with the header that Hugging Face's hub reads. Of paths it has the last part alone."""
    from fedse.experiments.methods import in_words
    from fedse.experiments.running import stored_experiment

    experiment = stored_experiment(exported.run)
    whose = f", as client `{exported.client}` plays with it" if exported.client else ""
    kind = "LoRA adapter" if exported.what == "adapter" else "base model with its LoRA adapter merged in"
    command = f"fedse export {experiment.name} {exported.folder} --what {exported.what} --round {exported.round}"
    facts = {
        "base model": _base(exported),
        "run": f"{experiment.name}, seed {experiment.seed}",
        "round": f"{exported.round} of {experiment.rounds_to_play}",
        "method": in_words(experiment).removeprefix("method "),
        "clients": str(len(experiment.clients)),
        "fedse": __version__,
    }
    lines = [
        *_header(exported),
        f"# {experiment.name}, after round {exported.round}",
        "",
        f"A {kind}{whose}. Made with fedse, federated self-evolution of language-model agents.",
        "",
        *_table(("", ""), facts.items()),
        "",
        "## Success on validation tasks",
        "",
        *_success(exported, experiment.mix.name),
        "",
        *_use(exported),
        "## Written by",
        "",
        "This command, in the folder that holds the run:",
        "",
        f"    {command}{f' --client {exported.client}' if exported.client else ''}",
    ]
    return "\n".join(lines) + "\n"


def shown_name(base: str) -> str:
    """A model's name on a hub as it is; of a folder the last part, since the rest concerns nobody else."""
    on_hub = base.count("/") == 1 and not base.startswith((".", "~", "/")) and not Path(base).is_dir()
    return base if on_hub else Path(base).name


def _base(exported: Exported) -> str:
    if not exported.base:
        return "none: a table in place of a language model"
    name = shown_name(exported.base)
    if exported.base_beside:
        return f"{name}, in the folder `{BASE}`"
    return name if "/" in name else f"{name}, a folder of whoever made this"


def _header(exported: Exported) -> list[str]:
    name = shown_name(exported.base)
    # The hub takes what stands here for one of its own names.
    known = [f"base_model: {name}"] if "/" in name and not exported.base_beside else []
    library = "peft" if exported.what == "adapter" else "transformers"
    named = [f"library_name: {library}"] if exported.base else []
    return ["---", *known, *named, "tags: [fedse, federated-learning, agent, lora]", "---", ""]


def _success(exported: Exported, mix: str) -> list[str]:
    from fedse.evaluation.curves import curves

    found = {
        name: row
        for name, rows in curves(exported.run).items()
        for row in rows
        if row["adapter"] == exported.round and row["success"] is not None and exported.client in ("", row["client"])
    }
    if not found:
        return ["Not measured after this round."]
    rows = []
    for name, row in found.items():
        low, high = row["interval"]
        rows.append(
            (name, f"{100 * row['success']:.1f} % ({100 * low:.0f} to {100 * high:.0f}), {row['episodes']} tasks")
        )
    table = _table(("client and world", "success (95 % interval)"), rows)
    if mix == "broadcast" or exported.client:
        return table
    return [*table, "", f"Each client was measured with what it makes of the shared adapter by itself (`mix: {mix}`)."]


def _use(exported: Exported) -> list[str]:
    if not exported.base:
        return []
    if exported.what == "merged":
        model = [f'AutoModelForCausalLM.from_pretrained("{exported.folder}")']
        tokenizer, imports = exported.folder, []
    else:
        tokenizer = f"{exported.folder}/{BASE}" if exported.base_beside else shown_name(exported.base)
        adapted = f'PeftModel.from_pretrained(model, "{exported.folder}")'
        model = [f'AutoModelForCausalLM.from_pretrained("{tokenizer}")', adapted]
        imports = ["from peft import PeftModel"]
    return [
        "## Use",
        "",
        "```python",
        *imports,
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        *(f"model = {line}" for line in model),
        f'tokenizer = AutoTokenizer.from_pretrained("{tokenizer}")',
        "```",
        "",
    ]


def _table(head: tuple[str, str], rows: Any) -> list[str]:
    return [f"| {head[0]} | {head[1]} |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
