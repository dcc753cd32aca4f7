"""The benchmark of noise over hundreds of sites: what it runs, and what it reads off."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def written(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.mark.slow
def test_sites_differ_in_their_part_and_runs_in_their_noise_alone(benchmarks: Callable[[str], ModuleType]) -> None:
    many = benchmarks("noise_over_sites")
    one, other = (many.together("same", noise, 10.0, 1, 2).model_dump() for noise in (0.5, 2.0))
    parts = [(site["worlds"][0]["name"], site["training"]["part"]) for site in one["clients"].values()]
    assert len(set(parts)) == len(parts) == sum(many.PARTS.values()) > 200
    assert one["aggregator"] != other["aggregator"]
    assert {key for key in one if one[key] != other[key]} == {"aggregator"}


def test_a_row_has_the_last_epsilon_and_the_mean_over_worlds(
    benchmarks: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = benchmarks("noise_over_sites")
    for number, epsilon in ((1, 3.0), (2, 5.0)):
        told = {"epsilon": epsilon, "update_norm": {"a": 1.0, "b": 3.0, "c": 2.5}, "mean_update_norm": number / 10}
        written(tmp_path / f"sites_1_s1/rounds/{number:04}/report.json", {"round": number, "diagnostics": told})
    for name in ("sites_1_s1", "sites_before_s1"):
        scores = [
            {"world": world, "successes": successes, "episodes": 10}
            for world, successes in (("maze", 4), ("babyai", 2), ("webshop", 3))
        ]
        written(tmp_path / f"{name}{many.TEST}/evaluations/test-0001.json", {"worlds": scores})
    row = many.row(tmp_path / "sites_1_s1")
    assert (row["epsilon"], row["rounds"], row["usual_change"], row["mean_change"]) == (5.0, 2, 2.5, [0.1, 0.2])
    assert row["macro"] == pytest.approx(0.3)
    given = many.argparse.Namespace(folders=sorted(tmp_path.iterdir()), output=tmp_path / "all.json")
    many.table(given)
    assert capsys.readouterr().out.splitlines() == [
        "| sites_1_s1 | 5 | 40.0 | 20.0 | 30.0 | **30.0** |",
        "| sites_before_s1 | 0 | 40.0 | 20.0 | 30.0 | **30.0** |",
    ]
    assert [each["run"] for each in json.loads((tmp_path / "all.json").read_text())] == [
        "sites_1_s1",
        "sites_before_s1",
    ]
