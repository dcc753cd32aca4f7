"""What bad sites did, as a table: cells of benchmarks/bad_sites.py, measured by one process or by many.

python benchmarks/bad_site_table.py runs/bad_sites/*.json --output docs/results/bad_sites.json
python benchmarks/bad_site_table.py docs/results/bad_sites.json --matrix      kinds by rules: success, and back doors below

refused    updates of bad sites that the checks which are on by default refuse, of how many
moved      distance of the last adapter from that of the same aggregator with honest sites, as a share of how far that went
success    of held-out tasks in the worlds of the honest sites, greedy; macro, worlds by name; means over seeds
back door  share of TextCraft's held-out tasks that begin with the chosen action: with the phrase (lowest to highest of the
           seeds, where they differ), and without it
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from bad_site_kinds import ATTACKS
from safetensors.numpy import load_file, save_file

from fedse.storage import atomic

Cell = dict[str, Any]
"""A rule, a kind of bad sites, and what came of it for each seed. `change` is how far the adapter went: an array, which is
stored beside the file."""

HEAD = (
    "| aggregator | bad sites | refused | moved | macro success (%) | by world | back door |\n"
    "| --- | --- | --- | ---: | ---: | --- | --- |"
)


def told_moved(cells: Sequence[Cell]) -> None:
    """Compare every cell with the honest one of the same rule and seed, where both adapters are at hand."""
    honest = {
        (cell["aggregator"], found["seed"]): found["change"]
        for cell in cells
        if not cell["bad"]
        for found in cell["seeds"]
        if "change" in found
    }
    for cell in cells:
        for found in cell["seeds"]:
            beside = honest.get((cell["aggregator"], found["seed"]))
            if "change" in found and beside is not None:
                away = np.linalg.norm(found["change"].astype(np.float64) - beside)
                found["moved"] = round(float(away / np.linalg.norm(beside.astype(np.float64))), 4)


def macro(found: dict[str, Any]) -> float:
    return 100 * fmean(found["success"].values())


def row(cell: Cell) -> str:
    seeds = cell["seeds"]
    names = sorted(seeds[0]["success"])
    worlds = " / ".join(f"{100 * fmean(found['success'][name] for found in seeds):.0f}" for name in names)
    macros = [macro(found) for found in seeds]
    spread = f" ({min(macros):.0f} to {max(macros):.0f})" if len(seeds) > 1 else ""
    times = sum(found["refused"] for found in seeds)
    refused = f"{times} of {cell['rounds'] * len(cell['bad']) * len(seeds)}" if times else "-"
    plain = 100 * fmean(found["without_phrase"] for found in seeds)
    away = f"{fmean(found['moved'] for found in seeds):.2f}" if all("moved" in found for found in seeds) else ""
    who = f"{len(cell['bad'])} {cell['attack']}" if cell["bad"] else "none"
    success = f"{fmean(macros):.1f}{spread} | {worlds}"
    return f"| `{cell['aggregator']}` | {who} | {refused} | {away} | {success} | {_door(seeds)} / {plain:.0f} |"


def matrix(cells: Sequence[Cell]) -> str:
    """A row for each kind of bad sites, a column for each rule: macro success, and how often bad sites were left out; then
    the back doors."""
    rules = list(dict.fromkeys(cell["aggregator"] for cell in cells))
    kinds = list(dict.fromkeys((cell["attack"], len(cell["bad"])) for cell in cells))
    found = {(cell["attack"], len(cell["bad"]), cell["aggregator"]): cell for cell in cells}

    def line(kind: tuple[str, int], title: str, told: Callable[[Cell], str]) -> str:
        return " | ".join(
            [f"| {title}", *(told(found[*kind, rule]) if (*kind, rule) in found else "" for rule in rules), ""]
        ).rstrip()

    def success(cell: Cell) -> str:
        out = sum(each["refused"] for each in cell["seeds"])
        often = f" ({out} of {cell['rounds'] * len(cell['bad']) * len(cell['seeds'])})" if out else ""
        return f"{fmean(macro(each) for each in cell['seeds']):.1f}{often}"

    opened = [kind for kind in kinds if kind[0].startswith("backdoored")]
    return "\n".join(
        [
            "| bad sites | " + " | ".join(f"`{rule}`" for rule in rules) + " |",
            "| --- |" + " ---: |" * len(rules),
            *(line(kind, f"{kind[1]} {kind[0]}" if kind[1] else "none", success) for kind in kinds),
            *(line(kind, f"back door: {kind[1]} {kind[0]}", lambda cell: _door(cell["seeds"])) for kind in opened),
        ]
    )


def _door(seeds: Sequence[dict[str, Any]]) -> str:
    rates = [100 * found["back_door"] for found in seeds]
    spread = f" ({min(rates):.0f} to {max(rates):.0f})" if len(set(rates)) > 1 else ""
    return f"{fmean(rates):.0f}{spread}"


def store(cells: Sequence[Cell], path: Path) -> None:
    """The numbers as JSON, and the changes beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    changes = {
        f"{at} {found['seed']}": found["change"]
        for at, cell in enumerate(cells)
        for found in cell["seeds"]
        if "change" in found
    }
    with atomic.new_file(path.with_suffix(".safetensors")) as part:
        save_file(changes, part)
    told = [{**cell, "seeds": [_without_change(found) for found in cell["seeds"]]} for cell in cells]
    atomic.write_text(path, json.dumps(told, indent=1) + "\n")


def stored(path: Path) -> list[Cell]:
    cells: list[Cell] = json.loads(path.read_text())
    beside = path.with_suffix(".safetensors")
    changes = load_file(beside) if beside.exists() else {}
    for at, cell in enumerate(cells):
        for found in cell["seeds"]:
            if (change := changes.get(f"{at} {found['seed']}")) is not None:
                found["change"] = change
    return cells


def joined(cells: Sequence[Cell]) -> list[Cell]:
    """One cell for each rule and kind of bad sites, with all seeds that were measured: rules as they come, then kinds."""
    together: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        asked = cell["aggregator"], cell["attack"], tuple(cell["bad"]), cell["rounds"], cell["tasks"]
        one = together.setdefault(asked, {**cell, "seeds": []})
        one["seeds"] = sorted([*one["seeds"], *cell["seeds"]], key=lambda found: found["seed"])
    rules = list(dict.fromkeys(cell["aggregator"] for cell in together.values()))
    kinds = list(ATTACKS)
    return sorted(
        together.values(),
        key=lambda cell: (rules.index(cell["aggregator"]), kinds.index(cell["attack"]), len(cell["bad"])),
    )


def _without_change(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "change"}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("paths", type=Path, nargs="+", help="JSON files of bad_sites.py")
    asked.add_argument("--output", type=Path, help="a JSON file for all of them")
    asked.add_argument("--matrix", action="store_true", help="kinds by rules")
    given = asked.parse_args()
    cells = joined([cell for path in given.paths for cell in stored(path)])
    told_moved(cells)
    print(matrix(cells) if given.matrix else "\n".join([HEAD, *map(row, cells)]))
    if given.output:
        told = [{**cell, "seeds": [_without_change(found) for found in cell["seeds"]]} for cell in cells]
        atomic.write_text(given.output, json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
