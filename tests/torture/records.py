"""Record files of a run, damaged and then read by the commands that only look: they say what they said before, or refuse.

The log of events is for people, and what an older fedse stored has no digests: there only tracebacks are looked for.
"""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path

from click.testing import CliRunner
from typer.main import get_command

from fedse.cli import app
from older_run import as_of_an_older_fedse

from .small_runs import damage, files, made

COMMANDS = (
    ("show", "{run}"),
    ("show", "{run}", "--round", "1", "--client", "east"),
    ("show", "{run}", "--split", "test", "--client", "west"),
    ("export", "{run}", "{out}/x.jsonl"),
    ("export", "{run}", "{out}/x.json"),
    ("export", "{run}", "{out}/adapter"),
    ("compare", "{run}", "--split", "validation", "--markdown"),
    ("runs", "--runs", "{runs}"),
)
_COMMAND = get_command(app)
_READ = (".json", ".jsonl", ".sqlite", ".yaml", ".safetensors")


def trial(chance: random.Random, scratch: Path) -> str:
    old = chance.random() < 0.3
    shutil.copytree(made() / "whole", scratch / "runs")
    folder = scratch / "runs" / "small"
    if old:
        as_of_an_older_fedse(folder)
    command = chance.choice(COMMANDS)
    chosen = chance.choice([path for path in files(folder) if path.suffix in _READ])
    damage(chosen, chance, folder)
    code, said = _said(command, scratch)
    if code:
        return "refused"
    told = said == _truth(command) or "is missing: the tables are without it" in said
    return "same" if old or chosen.name == "events.jsonl" or told else "silent"


@cache
def _truth(command: tuple[str, ...]) -> str:
    scratch = made() / f"said-{COMMANDS.index(command)}"
    shutil.copytree(made() / "whole", scratch / "runs")
    code, said = _said(command, scratch)
    assert code == 0, said
    return said


def _said(command: tuple[str, ...], scratch: Path) -> tuple[int, str]:
    """The exit code, and everything that was printed or written. Raises what nobody raises on purpose."""
    out = scratch / "out"
    out.mkdir()
    places = {"run": str(scratch / "runs/small"), "runs": str(scratch / "runs"), "out": str(out)}
    result = CliRunner().invoke(_COMMAND, [word.format(**places) for word in command])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    lines = [line for line in result.output.splitlines() if not line.startswith("Made with") and " MB" not in line]
    if command[0] == "runs":
        # Its last column is the size on disk.
        lines = [line.rsplit("│", 2)[0] for line in lines]
    written = "".join(path.read_bytes().hex() for path in files(out))
    return result.exit_code, "\n".join(lines).replace(str(scratch), "") + written
