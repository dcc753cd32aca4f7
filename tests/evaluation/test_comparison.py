"""Grouping, pairing and verdicts on outcomes that are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedse.errors import BadInput
from fedse.evaluation.compare_plot import curve
from fedse.evaluation.comparison import SURE, Group, Pair, compare, label_groups, to_json
from fedse.evaluation.measured import Cost, Measured

RANDOM = np.random.default_rng(0)


def measured(method: str, seed: int = 0, share: float = 0.5, tasks: int = 100, **changes: Any) -> Measured:
    settings = {
        "method": method,
        "filter.name": "success",
        "worlds.maze": {"name": "maze"},
        **changes.pop("settings", {}),
    }
    played = {f"t{number}": bool(RANDOM.random() < share) for number in range(tasks)}
    return Measured(
        **{
            "name": f"{method}-s{seed}",
            "seed": seed,
            "method": method,
            "settings": settings,
            "round": 2,
            "worlds": {"maze": played},
            "errors": 0,
            "curves": {"maze": {0: 0.1, 1: share / 2, 2: share}},
            "costs": {0: Cost(), 1: Cost(10, 5, 1.0, 100), 2: Cost(20, 10, 2.0, 200)},
            **changes,
        }
    )


def test_runs_that_differ_in_the_seed_alone_are_one_method() -> None:
    runs = [measured("fed_se", seed) for seed in (2, 0, 1)] + [measured("local", 0)]
    runs.append(measured("fed_se", 0, name="unfiltered", settings={"filter.name": "none"}))
    runs.append(measured("fed_se", 1, name="elsewhere", settings={"filter.name": "none", "engine.processes": 3}))
    groups = label_groups(runs)
    assert list(groups) == ["fed_se", "local", "fed_se, filter=none"]
    assert [run.seed for run in groups["fed_se"]] == [0, 1, 2]
    assert len(groups["fed_se, filter=none"]) == 2
    many = {f"learner.{name}": 1 for name in "abcde"}
    runs += [measured("fed_se", seed, name=f"all_changed-s{seed}", settings=many) for seed in (0, 1)]
    assert list(label_groups(runs))[-1] == "all_changed"
    with pytest.raises(BadInput, match="same experiment with the same seed"):
        label_groups([measured("fed_se"), measured("fed_se")])


def test_where_settings_are_too_many_for_a_label_all_go_by_their_names() -> None:
    many = {f"learner.{name}": 1 for name in "abcde"}
    demo, mine = measured("fed_se", name="demo"), measured("fed_se", name="mine", settings=many)
    assert list(label_groups([demo, mine])) == ["demo", "mine"]
    alone = measured("local_se", name="alone")
    found = compare([alone, demo, measured("fedit", name="mine", settings=many)])
    assert [group.label for group in found.groups] == ["alone", "demo", "mine"]
    assert {pair.ours for pair in found.pairs} == {"demo"}, "the one that is fed_se"
    assert {pair.ours for pair in compare([alone, demo, mine]).pairs} == {"demo"}, "the first of two"
    with pytest.raises(BadInput, match="these runs are alone; demo; mine"):
        compare([alone, demo, mine], against="fed_se")


def test_a_label_names_a_setting_so_that_no_other_can_be_meant() -> None:
    plain = {"learner.learning_rate": 1, "aggregator.name": "mean", "buffer.history": True, "start.name": "none"}
    summed = {"aggregator.name": "fedavgm", "aggregator.learning_rate": 5, "aggregator.momentum": 0.9}
    changes = {"plain": {}, "summed": summed, "forgets": {"buffer.history": False}}
    runs = [measured("fed_se", name=name, settings={**plain, **change}) for name, change in changes.items()]
    labels = [
        "fed_se",
        "fed_se, aggregator=fedavgm, aggregator.learning_rate=5, momentum=0.9",
        "fed_se, history=False",
    ]
    assert list(label_groups(runs)) == labels
    shown = {"start.name": "demonstrations", "start.tasks": 40}
    shown_most = [measured(f"m{number}", settings={**plain, **shown}) for number in range(4)]
    assert list(label_groups([*shown_most, runs[0]]))[-1] == "fed_se, start=none"


def test_where_no_value_is_that_of_most_every_label_has_its_own() -> None:
    swept = [measured("fed_se", name=f"n{tasks}", settings={"exploration.tasks": tasks}) for tasks in (10, 20)]
    assert list(label_groups(swept)) == ["fed_se, tasks=10", "fed_se, tasks=20"]
    unlike = [measured("fed_se", settings={"rounds": 4}), measured("local_se", settings={"rounds": 2})]
    assert list(label_groups(unlike)) == ["fed_se, rounds=4", "local_se, rounds=2"]
    mixed = [measured("fed_se"), measured("fed_se", name="own", settings={"mix.name": "personal"})]
    assert list(label_groups(mixed)) == ["fed_se", "fed_se, mix=personal"]


def test_fewer_rounds_of_one_seed_are_told() -> None:
    runs = [measured("fed_se", 0), measured("fed_se", 1, round=1), measured("local", 0)]
    found = compare(runs)
    assert [group.rounds for group in found.groups] == ["1 to 2", "2"]
    assert "The adapters come from different numbers of rounds (fed_se: 1 to 2, local: 2)." in found.notes
    assert not [note for note in compare([runs[0], runs[2]]).notes if "rounds" in note]


def test_runs_that_are_rounded_differently_are_one_method_and_the_reader_is_told() -> None:
    runs = [measured("fed_se", seed, roundings={"policy.slots": slots}) for seed, slots in ((0, 64), (1, 256))]
    found = compare([*runs, measured("local", roundings={"policy.slots": 64})])
    assert [group.label for group in found.groups] == ["fed_se", "local"]
    assert [note for note in found.notes if "policy.slots (256 or 64)" in note and "rounded" in note]
    assert not [note for note in compare([runs[0], measured("local")]).notes if "rounded" in note]


def test_runs_that_were_made_with_different_things_are_compared_and_the_reader_is_told() -> None:
    machines = [{"torch": "2.11", "device": "a card"}, {"torch": "2.13", "device": "a card"}]
    runs = [measured("fed_se", seed, made_with=[machine]) for seed, machine in enumerate(machines)]
    found = compare([*runs, measured("local", made_with=machines[:1])])
    assert "Not made with the same: torch (2.11 or 2.13)." in found.notes
    (ours, _) = to_json(found)["methods"]
    assert ours["made_with"] == {run.name: [machine] for run, machine in zip(runs, machines, strict=True)}
    assert not [note for note in compare([runs[0], measured("local")]).notes if "made with" in note]
    older = measured("local", made_with=[{}])
    assert "Not made with the same: torch (2.11 or not noted), device (a card or not noted)." in (
        compare([runs[0], older]).notes
    )
    assert not [note for note in compare([measured("fed_se", made_with=[{}]), older]).notes if "made with" in note]


@pytest.mark.slow
def test_a_clear_difference_is_named_and_a_small_one_is_not_distinguishable() -> None:
    runs = [
        measured(method, seed, share)
        for method, share in (("fed_se", 0.8), ("local_se", 0.78), ("fedit", 0.4))
        for seed in (0, 1, 2)
    ]
    found = compare(runs)
    verdicts = {pair.theirs: pair.verdict for pair in found.pairs}
    assert verdicts == {"local_se": "not distinguishable", "fedit": "fed_se is better"}
    assert {pair.ours for pair in compare(runs, against="fedit").pairs} == {"fedit"}
    assert compare(runs, against="fedit").pairs[0].verdict == "fed_se is better"
    assert len(compare(runs, all_pairs=True).pairs) == 3
    with pytest.raises(BadInput, match="--against other"):
        compare(runs, against="other")
    json.dumps(to_json(found))


def test_one_seed_compares_runs_and_not_methods() -> None:
    found = compare([measured("fed_se", 0, 0.8), measured("fedit", 0, 0.4)]).pairs[0]
    assert found.verdict == "fed_se has the better run"


def test_a_world_tells_methods_apart_only_if_test_and_interval_agree() -> None:
    def pair(shares: Sequence[float]) -> Pair:
        theirs = [measured("fedit", seed, 0.4) for seed in range(3)]
        return compare([*(measured("fed_se", seed, share) for seed, share in enumerate(shares)), *theirs]).pairs[0]

    steady, lucky = pair([0.7, 0.7, 0.7]), pair([1.0, 0.4, 0.4])
    assert steady.by_world["maze"] < SURE and steady.differs_in("maze")
    assert lucky.by_world["maze"] < SURE and not lucky.differs_in("maze")


def test_only_common_tasks_count_and_the_reader_is_told() -> None:
    long, short = measured("fed_se", tasks=100), measured("local", tasks=60)
    found = compare([long, short])
    assert {group.successes["maze"].shape for group in found.groups} == {(1, 60)}
    assert any("60 tasks that all runs played; some played 100" in note for note in found.notes)
    assert any("one seed" in note for note in found.notes)
    broken = measured("local", tasks=60, errors=2)
    assert any("2 episodes ended in an error" in note for note in compare([long, broken]).notes)


def test_a_second_site_with_the_same_tasks_makes_no_interval_narrower() -> None:
    run = measured("fed_se", settings={"worlds.west": {"name": "maze", "turn_limit": 9}})
    (name,) = run.worlds
    other = {f"other {task}": success for task, success in run.worlds[name].items()}
    alone, same, apart = (
        compare([replace(run, worlds=worlds), replace(run, seed=1, worlds=worlds)]).groups[0]
        for worlds in (
            {name: run.worlds[name]},
            {name: run.worlds[name], "west": run.worlds[name]},
            {name: run.worlds[name], "west": other},
        )
    )
    unlike = replace(
        run,
        settings={**run.settings, "worlds.west": {"name": "lake"}},
        worlds={name: run.worlds[name], "west": run.worlds[name]},
    )
    of_another_world = compare([unlike, replace(unlike, seed=1)]).groups[0]
    assert of_another_world.macro() == apart.macro(), "the same numbers, and not the same tasks"
    for kind in (Group.macro, Group.micro):
        share, (low, high) = kind(alone)
        assert kind(same)[0] == share and kind(same)[1] == pytest.approx((low, high))
        assert kind(apart)[1][1] - kind(apart)[1][0] < 0.8 * (high - low)


def test_what_cannot_be_compared_is_refused() -> None:
    other = measured("local", settings={"worlds.maze": {"name": "maze", "turn_limit": 3}})
    with pytest.raises(BadInput, match="'maze' has different options"):
        compare([measured("fed_se"), other])
    elsewhere = measured("local", worlds={"wordle": {"t0": True}})
    with pytest.raises(BadInput, match="no common task"):
        compare([measured("fed_se"), elsewhere])


def test_runs_without_a_common_seed_are_paired_and_it_is_said() -> None:
    found = compare([measured("fed_se", 0), measured("local", 1)])
    assert any("no seed in common" in note for note in found.notes)


def test_curves_are_means_with_bands_over_seeds() -> None:
    runs = [measured("fed_se", seed, share) for seed, share in ((0, 0.4), (1, 0.8))]
    points = curve(runs, lambda run, number: run.costs[number].seconds, ["maze"])
    assert [point[0] for point in points] == [0.0, 1.0, 2.0]
    assert points[-1][1:] == pytest.approx((0.6, 0.4, 0.8))
