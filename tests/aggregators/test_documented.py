"""Every aggregator says in its own file, and in the table of all, what it is, what it promises and what it costs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from fedse.aggregators.rule import PROMISES
from fedse.plugins import resolve
from fedse.plugins.shipped import KNOWN

PAGE = (Path(__file__).parents[2] / "docs/aggregators.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.split("**FedProx**")[0], re.MULTILINE))


@pytest.mark.parametrize("name", KNOWN["aggregator"])
def test_its_file_holds_formula_paper_cost_and_use(name: str) -> None:
    told = inspect.getdoc(inspect.getmodule(resolve("aggregator", name))) or ""
    assert "arXiv" in told
    assert re.search(r"^    .*(=|next)", told, re.MULTILINE), "no formula"
    assert "\nCost: " in told and "\nHelps: " in told


@pytest.mark.parametrize("name", KNOWN["aggregator"])
def test_the_table_has_it_with_its_promises(name: str) -> None:
    promised = ROWS[name].split("|")[-1]
    found = {word for word in PROMISES if word in promised}
    assert found == set(resolve("aggregator", name)().promises)


def test_the_table_has_nothing_else_and_every_cost_is_measured() -> None:
    assert ROWS.keys() == KNOWN["aggregator"].keys()
    measured = re.findall(r"^\| `(\w+)` \| [\d.]+ \| [\d.]+ \|", PAGE.split("## Cost")[1], re.MULTILINE)
    assert measured == list(KNOWN["aggregator"])
