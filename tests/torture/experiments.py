"""Experiment files that somebody wrote badly, or wrote in order to break things.

One that is taken has to mean what it says: written down and read again it is the same experiment, of finite numbers only.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from fedse.errors import BadInput
from fedse.experiments.options import load_experiment

PLAIN = """name: plain
seed: 3
rounds: 4
model: {name: table, rows: 512}
policy: table
learner: table
aggregator: {name: norm_bounded}
clients:
  east: {worlds: [{name: maze, mode: original}, wordle]}
  west:
    worlds:
      - {name: maze, turn_limit: 12}
start: {tasks: 3}
exploration: {tasks: 10, attempts: 2, temperature: 1.0}
evaluation: {tasks: 5, test_tasks: 5}
limits: {max_error_share: 0.1}
checks: {}
"""
WORDS = (
    *(".inf", "-.inf", ".nan", "1e999", "-1", "0", "1e-3", "9" * 30, "0x" + "f" * 5000, "0o7", "1:30:00", "2026-01-01"),
    *(
        "null",
        "~",
        "true",
        "yes",
        "''",
        "'\\0'",
        '"\\ud800"',
        '"\\x1b]52;c;aGk=\\a"',
        "\u202e",
        "é",
        "名",
        "[]",
        "{}",
        "[[]]",
    ),
    *(
        "&x [1]",
        "*x",
        "*none",
        "<<: {a: 1}",
        "<<: 3",
        "? [a]",
        "!!python/object:os.system x",
        "!!binary aGk=",
        "!!set {a}",
    ),
    *(
        "a:B",
        "os:path",
        "m" * 300,
        "x/y",
        "/",
        "..",
        "fedse.worlds.maze:Maze",
        "- -",
        "|",
        ">",
        "%",
        "@",
        "`",
        "\t",
        "\x00",
        "\x07",
    ),
    *("name", "rounds", "clients", "model", "method", "worlds", "fed_se", "local_se", "none", "pooled", "'<<'", "="),
)


def trial(chance: random.Random, scratch: Path) -> str:
    file = scratch / "e.yaml"
    if chance.random() < 0.04:
        file.write_text(PLAIN + _bomb(chance), encoding="utf-8")
        return _read(file, taken="silent")
    text = PLAIN
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        text = chance.choice(_CHANGES)(text, chance)
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return _read(file, taken="same")


def _read(file: Path, taken: str) -> str:
    try:
        found = load_experiment(file)
    except BadInput as refused:
        # A message that fills the screen tells nobody what is wrong.
        return "refused" if 0 < len(str(refused)) < 12_000 else "silent"
    file.write_text(found.to_yaml(), encoding="utf-8")
    whole = load_experiment(file) == found and _finite(found.model_dump(mode="json"))
    return taken if whole else "silent"


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, int | float) or (math.isfinite(value) and abs(value) < 2**63)


def _lines(change: Any) -> Any:
    def changed(text: str, chance: random.Random) -> str:
        lines = text.splitlines(keepends=True) or ["\n"]
        change(lines, chance.randrange(len(lines)), chance)
        return "".join(lines)

    return changed


def _word(text: str, chance: random.Random) -> str:
    """Another value in the place of one that stands there."""
    places = [at for at, sign in enumerate(text) if sign in " :{[,"]
    at = chance.choice(places or [0])
    end = next((place for place in range(at + 1, len(text)) if text[place] in ",}]\n"), len(text))
    return f"{text[: at + 1]} {chance.choice(WORDS)}{text[end:]}"


def _insert(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(WORDS) + text[at:]


def _sign(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) or 1)
    return text[:at] + chr(chance.choice([chance.randrange(128), chance.randrange(0x3000)])) + text[at + 1 :]


def _cut(text: str, chance: random.Random) -> str:
    one, two = sorted(chance.randrange(len(text) + 1) for _ in range(2))
    return text[:one] + text[two:] if chance.random() < 0.5 else text[:one]


def _digit(text: str, chance: random.Random) -> str:
    places = [at for at, sign in enumerate(text) if sign.isdigit()] or [0]
    at = chance.choice(places)
    return text[:at] + str(chance.randrange(100)) + text[at + 1 :]


_CHANGES = (
    _digit,
    _word,
    _word,
    _insert,
    _sign,
    _cut,
    _lines(lambda lines, at, _: lines.pop(at)),
    _lines(lambda lines, at, chance: lines.insert(chance.randrange(len(lines)), lines[at])),
    _lines(lambda lines, at, chance: lines.insert(at, f"{chance.choice(WORDS)}: {chance.choice(WORDS)}\n")),
    _lines(lambda lines, at, chance: lines.__setitem__(at, " " * chance.randrange(5) + lines[at])),
)


def _bomb(chance: random.Random) -> str:
    """A few lines that stand for very many values, or for themselves."""
    wide, deep = chance.randint(8, 12), chance.randint(7, 60)
    kind = chance.choice(["list", "map", "merge", "itself", "nested"])
    if kind == "nested":
        return "x: " + "[" * 20 * deep + "]" * 20 * deep + "\n"
    if kind == "itself":
        return chance.choice(["x: &x [*x]\n", "x: &x {y: *x}\n", "x: &x {<<: *x}\n", "x: &x {<<: [*x, *x]}\n"])
    told = ["x0: &x0 {a: 1}\n"]
    for level in range(1, deep):
        names = [f"*x{level - 1}"] * wide
        inside = {
            "list": f"[{', '.join(names)}]",
            "map": "{" + ", ".join(f"k{place}: {name}" for place, name in enumerate(names)) + "}",
            "merge": f"{{<<: [{', '.join(names)}]}}",
        }[kind]
        told.append(f"x{level}: &x{level} {inside}\n")
    return "".join(told)
