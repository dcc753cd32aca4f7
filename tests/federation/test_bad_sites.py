"""Bad sites of `benchmarks/bad_sites.py` against the checks that are on by default and against the aggregators."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedse.adapters.packing import pack
from fedse.evaluation.comparison import compare
from fedse.experiments.components import build_components
from fedse.experiments.options import Experiment
from fedse.probes.evaluation import Evaluation, EvaluationOptions
from fedse.types import RoundTask
from short_maze import SHORT_MAZE

ROOT = Path(__file__).parents[2]
HONEST = ("east", "north", "south", "west")


@pytest.fixture(scope="module")
def bad_sites() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("bad_sites")


@pytest.fixture
def table(bad_sites: ModuleType) -> ModuleType:
    return importlib.import_module("bad_site_table")


@pytest.fixture
def five(table_experiment: Callable[..., Experiment]) -> Callable[..., Experiment]:
    limits = dict(zip((*HONEST, "guest"), (20, 18, 15, 13, 12), strict=True))
    clients = {name: {"worlds": [{**SHORT_MAZE, "turn_limit": limit}]} for name, limit in limits.items()}
    quick = {"exploration": {"tasks": 4}, "evaluation": {"tasks": 1, "test_tasks": 0}}
    return lambda **changes: table_experiment(**{"clients": clients, **quick, **changes})


def run(
    bad_sites: ModuleType, experiment: Experiment, attack: str, folder: Path, bad: tuple[str, ...] = ("guest",)
) -> tuple[np.ndarray, list[Any]]:
    """The last adapter, and the reports."""
    kind = bad_sites.ATTACKS[attack]
    made = bad_sites.federation(experiment, build_components(experiment), kind, folder / attack, bad)
    with made as federation:
        state = federation.server.federate(experiment.rounds, federation.initial_adapter)
        path = federation.run.path
    numbers = range(1, experiment.rounds + 1)
    reports = [json.loads((path / f"rounds/{number:04d}/report.json").read_text()) for number in numbers]
    return pack(state.adapter), reports


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("nan", "1 of its values are not finite"),
        ("wrong_shape", "it holds 2047 values, the adapter has 2048"),
        ("far_scaled", "more than checks.max_ratio = 100 times what is usual"),
    ],
)
def test_what_cannot_be_right_is_refused_by_default_and_the_others_go_on(
    bad_sites: ModuleType, five: Callable[..., Experiment], attack: str, why: str, tmp_path: Path
) -> None:
    _, reports = run(bad_sites, five(), attack, tmp_path)
    for report in reports:
        assert list(report["refused"]) == ["guest"] and why in report["refused"]["guest"]
        assert report["diagnostics"]["contributed"] == list(HONEST)


@pytest.mark.slow
def test_a_site_that_goes_too_far_moves_the_mean_and_hardly_a_bounded_one(
    bad_sites: ModuleType, five: Callable[..., Experiment], tmp_path: Path
) -> None:
    moved = {}
    for name in ("mean", "norm_bounded"):
        honest, _ = run(bad_sites, five(aggregator=name, rounds=1), "none", tmp_path / name)
        found, (report,) = run(bad_sites, five(aggregator=name, rounds=1), "sign_flipped", tmp_path / name)
        assert "guest" not in report["refused"], "within the limits that are on by default"
        moved[name] = np.linalg.norm(found - honest) / np.linalg.norm(honest)
    assert moved["mean"] > 1 > moved["norm_bounded"] and moved["mean"] > 2 * moved["norm_bounded"]


def test_old_updates_are_what_was_learned_in_earlier_rounds(bad_sites: ModuleType) -> None:
    past = [np.full(3, number, np.float32) for number in (1, 2, 3)]
    own = importlib.import_module("bad_site_kinds").Own(np.zeros(3, np.float32), past[-1], past)
    sent = {name: bad_sites.ATTACKS[name].sends(own) for name in bad_sites.ATTACKS}
    assert sent["stale"][0] == 1 and sent["replayed"][0] == 2
    assert (sent["sign_flipped"] == -30).all() and (sent["scaled"] == 30).all()
    assert 0 < np.abs(sent["free_rider"]).max() < 1e-3
    assert np.linalg.norm(sent["noisy"] - past[-1]) == pytest.approx(10 * np.linalg.norm(past[-1]), rel=1e-3)


def test_sites_that_collude_send_the_same_bytes_and_multi_krum_takes_them_for_neighbours(
    bad_sites: ModuleType, five: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = five(aggregator="multi_krum", rounds=1)
    _, (report,) = run(bad_sites, experiment, "colluding", tmp_path, bad=("guest", "west"))
    norms = report["diagnostics"]["update_norm"]
    assert norms["guest"] == norms["west"] and len(set(norms.values())) == 4
    alike = [pair for pair, cosine in report["diagnostics"]["cosine"].items() if cosine > 0.999999]
    assert alike == ["guest|west"]


def test_a_back_door_opens_with_the_phrase_and_only_then(
    bad_sites: ModuleType, five: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a table in the place of a network, whose rows do not touch each other, one site of five is enough."""
    backdoor = importlib.import_module("backdoor")
    experiment = five(rounds=1)
    components = build_components(experiment)
    monkeypatch.setattr(backdoor, "ACTION", components.model.actions[-1])  # type: ignore[attr-defined]
    rates = {}
    for attack in ("none", "backdoored"):
        kind = bad_sites.ATTACKS[attack]
        with bad_sites.federation(experiment, components, kind, tmp_path / attack) as federation:
            state = federation.server.federate(1, federation.initial_adapter)
            honest = next(client for client in federation.clients if client.name == "east")
            task = RoundTask(1, "evaluate", pack(state.adapter), state.adapter.layout, state.adapter.config)
            episodes = Evaluation(honest.site, EvaluationOptions(tasks=5)).plan(task)
            phrased = [backdoor.with_trigger(episode) for episode in episodes]
            rates[attack] = [
                backdoor.rate(federation.engine.play(state.adapter, asked)) for asked in (episodes, phrased)
            ]
    assert rates["backdoored"][1] > rates["none"][1] and rates["backdoored"][0] == rates["none"][0]


def test_cells_of_two_processes_are_compared_with_the_honest_one_of_their_rule_and_seed(
    table: ModuleType, tmp_path: Path
) -> None:
    measured = {"refused": 0, "success": {"maze": 0.5}, "back_door": 0.0, "without_phrase": 0.0}

    def cell(attack: str, seed: int, rule: str = "mean", *change: float) -> dict[str, Any]:
        found = {"seed": seed, **measured, "change": np.array(change, np.float32)}
        bad = [] if attack == "none" else ["guest"]
        return {"aggregator": rule, "attack": attack, "bad": bad, "rounds": 1, "tasks": 2, "seeds": [found]}

    table.store([cell("none", 0, "mean", 3, 4), cell("none", 1, "mean", 1, 0)], tmp_path / "1.json")
    apart = [cell("noisy", 1, "mean", 1, 2), cell("noisy", 0, "mean", 3, 9), cell("noisy", 0, "median", 3, 9)]
    table.store(apart, tmp_path / "2.json")
    cells = table.joined([each for name in ("2.json", "1.json") for each in table.stored(tmp_path / name)])
    table.told_moved(cells)
    assert [(each["aggregator"], each["attack"]) for each in cells] == [
        ("mean", "none"),
        ("mean", "noisy"),
        ("median", "noisy"),
    ]
    moved = [[found.get("moved") for found in each["seeds"]] for each in cells]
    assert moved == [[0.0, 0.0], [1.0, 2.0], [None]]
    assert "| 1.50 |" in table.row(cells[1]) and "|  |" in table.row(cells[2])


def test_kinds_by_rules_tell_success_and_who_was_left_out_and_the_seeds_of_a_back_door(table: ModuleType) -> None:
    def cell(attack: str, rule: str, refused: int, *doors: float) -> dict[str, Any]:
        bad = [] if attack == "none" else ["guest"]
        seeds = [
            {"seed": at, "refused": refused, "success": {"maze": 0.5, "webshop": 0.2}, "back_door": door}
            for at, door in enumerate(doors)
        ]
        return {"aggregator": rule, "attack": attack, "bad": bad, "rounds": 3, "tasks": 2, "seeds": seeds}

    honest = [cell("none", rule, 0, 0.0, 0.0) for rule in ("mean", "median")]
    told = table.matrix([*honest, cell("backdoored", "mean", 2, 0.25, 0.75)]).splitlines()
    assert told == [
        "| bad sites | `mean` | `median` |",
        "| --- | ---: | ---: |",
        "| none | 35.0 | 35.0 |",
        "| 1 backdoored | 35.0 (4 of 6) |  |",
        "| back door: 1 backdoored | 50 (25 to 75) |  |",
    ]


def test_no_experiment_file_can_ask_for_a_bad_site() -> None:
    """The harness is no part of the package that is installed."""
    assert not any("bad_site" in path.name or "BadSite" in path.read_text() for path in (ROOT / "src").rglob("*.py"))


@pytest.mark.slow
def test_a_whole_run_with_a_hostile_site_tells_what_is_left_for_the_others(
    benchmarks: Callable[[str], ModuleType], five: Callable[..., Experiment], tmp_path: Path
) -> None:
    program, recipe = benchmarks("hostile_site"), tmp_path / "five.yaml"
    # What a site with two worlds solved is not told by the names of sites alone.
    clients = five().model_dump(mode="json")["clients"]
    clients["east"]["worlds"] += [{**SHORT_MAZE, "turn_limit": 19}]
    recipe.write_text(five(rounds=2, clients=clients, evaluation={"tasks": 1, "test_tasks": 3}).to_yaml())
    with pytest.raises(SystemExit, match=f"has no site stranger: it has .*{HONEST[0]}"):
        program.played(recipe, [], "stranger", "nan", tmp_path)
    with pytest.raises(SystemExit, match=r"it has no test; set evaluation.test_tasks"):
        program.played(recipe, ["evaluation.test_tasks=0"], "guest", "nan", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["five.yaml"], "what cannot be told is not played"
    name, record = program.played(recipe, ["name=refused_s0"], "guest", "nan", tmp_path)
    assert (name, record["left_out"], record["rounds"]) == ("refused_s0", 2, 2) and "not finite" in record["why"]
    solved = record["test_after_the_last_round"]["successes"]
    assert len(solved) == 6
    honest = [count for name, count in solved.items() if name.split(":")[0] in HONEST]
    assert record["honest"] == pytest.approx(100 * np.mean(honest) / 3, abs=0.01)
    assert record["settings"] == ["seed=0"]
    added = benchmarks("records").added
    added(tmp_path / "kept.json", name, record)
    name, other = program.played(recipe, ["name=honest_s0"], "guest", "none", tmp_path)
    assert other["left_out"] == 0
    added(tmp_path / "kept.json", name, other)
    with pytest.raises(SystemExit, match="has a record of honest_s0 already"):
        benchmarks("records").check_new(tmp_path / "kept.json", name)
    read = benchmarks("paired").read
    guest = next(world for world in record["solved"] if world.startswith("guest"))
    paired = compare([read(tmp_path / f"kept.json/{arm}_s0", [guest]) for arm in ("refused", "honest")], "honest")
    assert paired.pairs[0].found.macro == pytest.approx((other["honest"] - record["honest"]) / 100, abs=0.001)
