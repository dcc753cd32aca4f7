"""Plug-ins that follow a paper are in the table of papers, each with its file, the paper and what was measured."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from fedse.curricula.signals import SIGNALS
from fedse.plugins import resolve
from fedse.plugins.shipped import KNOWN

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/papers.md").read_text()
ROWS = re.findall(r"^\| (`[^|]+`) \| (\[[^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
NUMBER = re.compile(r"arXiv\s+(\d{4}\.\d{5})")


def numbered() -> list[tuple[str, str, str]]:
    """Plug-ins whose file names a paper: slot, name, number."""
    return [
        (kind, name, number)
        for kind, plugins in KNOWN.items()
        for name in plugins
        for number in NUMBER.findall(inspect.getdoc(inspect.getmodule(resolve(kind, name))) or "")
    ]


@pytest.mark.parametrize(("kind", "name", "number"), numbered())
def test_a_plug_in_that_names_a_paper_is_in_the_table_with_its_file(kind: str, name: str, number: str) -> None:
    home = Path(inspect.getfile(resolve(kind, name))).relative_to(ROOT / "src/fedse").as_posix()
    rows = [row for row in ROWS if row[0] in (f"`{name}`", f"`{kind}: {name}`")]
    assert len(rows) == 1
    assert f"../src/fedse/{home}" in rows[0][1] and number in rows[0][2]


def test_every_paper_that_the_package_names_is_on_the_page() -> None:
    named = {number for path in (ROOT / "src").rglob("*.py") for number in NUMBER.findall(path.read_text())}
    assert len(named) > 25
    assert named - set(re.findall(r"abs/(\d{4}\.\d{5})", PAGE)) == set()


def test_every_signal_of_a_paper_has_a_row() -> None:
    told = {signal for row in ROWS for signal in re.findall(r"by_signal`, `(\w+)`", row[0])}
    assert told == SIGNALS.keys() - {"learnability"}


def test_results_are_those_of_the_page_they_come_from() -> None:
    results = (ROOT / "docs/results/aggregators.md").read_text()
    measured = dict(re.findall(r"^\| `(\w+)` \|.*\| ([-+]?\d+\.\d \([^)]*\)) \|", results, re.MULTILINE))
    compared = {row[0].strip("`"): row[3] for row in ROWS if row[0].strip("`") in KNOWN["aggregator"]}
    assert len(compared) == len(KNOWN["aggregator"]) and len(measured) > 15
    for name, told in compared.items():
        assert told.startswith(measured[name]) if name in measured else " to " not in told
