"""Soft labels: who is left out for what it sends, and that nobody is where all are honest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedse import run
from fedse.adapters.packing import pack
from fedse.adapters.stored import UpdateFile, store_update
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.experiments.running import prepare
from fedse.federation.governance import Governance, GovernanceOptions, Standing, gain, standings
from fedse.runs.folder import RunFolder
from fedse.types import Adapter, ClientUpdate, Vector, WorldScore
from short_maze import SHORT_MAZE

SIZE = 200
NAMES = ("east", "north", "south", "west", "guest")
BROADCAST = Adapter({"t": np.linspace(0, 1, SIZE, dtype=np.float32)})


def honest(seed: int = 0) -> dict[str, Vector]:
    """Changes with something in common, and of about the same length."""
    draw = np.random.default_rng(seed)
    common = draw.standard_normal(SIZE)
    return {name: (common + draw.standard_normal(SIZE)).astype(np.float32) for name in NAMES}


def judged(
    changes: Mapping[str, Vector],
    folder: Path,
    known: Mapping[str, Standing] | None = None,
    gains: Mapping[str, float] | None = None,
    **options: Any,
) -> tuple[Governance, dict[str, str]]:
    stored: list[UpdateFile] = [
        store_update(ClientUpdate(name, 1, pack(BROADCAST) + changes[name], BROADCAST.layout, {}, {}), folder)
        for name in sorted(changes)
    ]
    governance = Governance(GovernanceOptions(**options), known or {})
    return governance, governance.refused(pack(BROADCAST), stored, gains or {})


def test_nobody_is_left_out_where_all_are_honest(tmp_path: Path) -> None:
    for seed in range(10):
        governance, refused = judged(honest(seed), tmp_path)
        assert refused == {} and all(label.p > 0.7 for label in governance.labels.values())


def test_where_nobody_would_be_trusted_nobody_is_left_out(tmp_path: Path) -> None:
    changes = {name: np.zeros(SIZE, np.float32) for name in NAMES[:3]}
    for number, length in enumerate((1, 5, 25)):
        changes[NAMES[number]][number] = length
    governance, refused = judged(changes, tmp_path)
    assert refused == {} and all(label.p < 0.4 for label in governance.labels.values())


@pytest.mark.parametrize("times", [-10.0, -2.0, 10.0])
def test_one_that_goes_too_far_or_the_other_way_is_left_out(times: float, tmp_path: Path) -> None:
    changes = honest()
    draw = np.random.default_rng(9)
    changes["guest"] = np.float32(times) * (changes["guest"] if times < 0 else draw.standard_normal(SIZE))
    governance, refused = judged({name: change.astype(np.float32) for name, change in changes.items()}, tmp_path)
    assert list(refused) == ["guest"] and "checks.governance.breaker = 0.4" in refused["guest"]
    told = governance.told(refused)
    assert told["quality_gap"] > 0.4 and told["toxicity"] < 0.3


def test_the_label_is_what_the_page_says(tmp_path: Path) -> None:
    changes = honest()
    governance, _ = judged(
        changes, tmp_path, {"guest": Standing(0.2, refused=1, rounds=4)}, {"guest": 0.1}, audit_share=0
    )
    units = {name: change / np.linalg.norm(change) for name, change in changes.items()}

    def cosine(name: str) -> float:
        others = sum(units[other] for other in NAMES if other != name)
        return float(units[name] @ others / np.linalg.norm(others))

    usual = np.median([abs(cosine(name)) for name in NAMES])
    norms = sorted(float(np.linalg.norm(changes[name])) for name in NAMES if name != "guest")
    ratio = float(np.linalg.norm(changes["guest"])) / norms[1]
    v = (1 - abs(math.log2(ratio)) + min(1, cosine("guest") / usual) - 0.5 + 2 * 0.5) / 5
    label = governance.labels["guest"]
    assert label.p == pytest.approx(1 / (1 + math.exp(-3 * v)), rel=1e-4)
    assert label.trust == pytest.approx(0.5 * 0.2 + 0.5 * label.p) and not label.audited


def test_a_good_name_carries_a_site_over_one_bad_round_unless_it_is_audited(tmp_path: Path) -> None:
    changes = honest()
    changes["guest"] = -2 * changes["guest"]
    trusted = {"guest": Standing(0.95, rounds=5)}
    assert judged(changes, tmp_path, trusted, audit_share=0)[1] == {}
    assert list(judged(changes, tmp_path, trusted, audit_share=1)[1]) == ["guest"]
    drawn = [
        judged(honest(seed), tmp_path, audit_share=0.2)[0].labels[name].audited for seed in range(12) for name in NAMES
    ]
    assert 3 < sum(drawn) < 30


def test_of_two_nobody_can_tell_which_is_odd(tmp_path: Path) -> None:
    changes = honest()
    assert judged({"east": changes["east"], "guest": -9 * changes["east"]}, tmp_path)[1] == {}


def score(world: str, successes: int) -> WorldScore:
    return WorldScore(world, "validation", 10, successes, 1, 1, 0, {}, 0.0, None)


def test_a_gain_is_of_the_worlds_that_were_measured_both_times() -> None:
    assert gain([score("maze", 7), score("wordle", 1)], [score("maze", 4)]) == pytest.approx(0.3)
    assert gain([], [score("maze", 4)]) is None


@pytest.mark.slow
def test_an_honest_run_is_the_same_with_it_and_trust_is_remembered(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    clients = {
        name: {"worlds": [{**SHORT_MAZE, "turn_limit": limit}]}
        for name, limit in zip(("east", "north", "west"), (20, 19, 18), strict=True)
    }
    sizes = {"clients": clients, "exploration": {"tasks": 4}, "evaluation": {"tasks": 4, "test_tasks": 0}}
    run(table_experiment(**sizes), tmp_path / "without")
    run(table_experiment(**sizes, checks={"governance": {}}), tmp_path / "with")
    folders = [RunFolder(tmp_path / name / "table") for name in ("without", "with")]
    assert folders[0].digest_of(2) == folders[1].digest_of(2)
    told = (folders[1].report(2) or {})["diagnostics"]["governance"]
    assert set(told["sites"]) == set(clients) and "governance" not in (folders[0].report(2) or {})["diagnostics"]
    for rounds in (1, 2):
        run(table_experiment(**sizes, rounds=rounds, checks={"governance": {}}), tmp_path / "resumed")
    resumed = (RunFolder(tmp_path / "resumed/table").report(2) or {})["diagnostics"]["governance"]
    assert resumed == told, "trust is read from the reports"
    known = standings(folders[1], 2)
    assert known["east"].trust == told["sites"]["east"]["trust"] and known["east"].rounds == 2


def test_rounds_of_two_updates_count_among_those_of_which_some_were_refused() -> None:
    """They have no labels, and once refused would otherwise be always refused."""
    reports: dict[int, Any] = {number: {"diagnostics": {"contributed": ["east", "guest"]}} for number in range(2, 11)}
    reports[1] = {"diagnostics": {"contributed": ["east"]}, "refused": {"guest": "it is odd"}}
    run_: Any = SimpleNamespace(report=reports.get)
    assert standings(run_, 10) == {"east": Standing(None, 0, 10), "guest": Standing(None, 1, 10)}


@pytest.mark.parametrize(("fraction", "warned"), [(0.5, True), (1.0, False)])
def test_a_run_whose_rounds_have_too_few_updates_to_judge_says_so(
    fraction: float, warned: bool, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    clients = {name: {"worlds": [SHORT_MAZE]} for name in NAMES[:4]}
    options = {"clients": clients, "participation": {"fraction": fraction}, "checks": {"governance": {}}}
    with prepare(table_experiment(**options), tmp_path) as federation:
        told = (federation.run.path / "events.jsonl").read_text()
    assert ("a round has at most 2 here" in told) is warned


def test_a_secure_sum_has_nothing_to_judge(table_experiment: Callable[..., Experiment]) -> None:
    with pytest.raises(BadInput, match=r"`checks\.governance` compares single updates"):
        table_experiment(checks={"governance": {}}, sending={"secure_sum": {"min_sites": 2}})
