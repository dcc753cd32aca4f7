"""What clients make of the broadcast adapter: the formulas by hand, and whole rounds on a table in two factors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import fedse
from factored_table import FactoredLearner
from fedse.adapters.files import read_adapter
from fedse.cli import app
from fedse.cli.rounds import chosen_round
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.experiments.transfer import BEGINNING, SHARED, transfer
from fedse.mixes.blend import Blend
from fedse.mixes.fedalt import FedAlt
from fedse.mixes.feddpa import FedDpa
from fedse.mixes.specialists import Specialists
from fedse.runs.reading import RunView
from fedse.types import Adapter, Lesson, Sent
from short_maze import SHORT_MAZE

LATE_WEST = {"east": {"worlds": [SHORT_MAZE]}, "west": {"worlds": [SHORT_MAZE], "joins": 2}}
A, B = "m.lora_A.weight", "m.lora_B.weight"
OTHER_A, OTHER_B = "m.lora_A.residual.weight", "m.lora_B.residual.weight"
OWN_A, OWN_B = "m.lora_A.personal.weight", "m.lora_B.personal.weight"


def pair(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        A: random.standard_normal((2, 5)).astype(np.float32),
        B: random.standard_normal((4, 2)).astype(np.float32),
    }


def mean(*pairs: dict[str, Any]) -> Adapter:
    return Adapter({name: np.mean([one[name] for one in pairs], axis=0) for name in (A, B)}, {"r": 2})


def test_fedalt_puts_the_mean_of_the_others_beside_the_own_adapter() -> None:
    own, east, west = pair(0), pair(1), pair(2)
    sent = Sent(mean(own, east, west), 3, ("east", "me", "west"), own=own)
    found = FedAlt("me", 0, others=0.5).compose(sent, own)
    wanted = mean(east, west).tensors
    assert found.tensors.keys() == {A, B, OTHER_A, OTHER_B}
    assert all(np.array_equal(found.tensors[name], own[name]) for name in own)
    np.testing.assert_allclose(found.tensors[OTHER_A], wanted[A], atol=1e-6)
    np.testing.assert_allclose(found.tensors[OTHER_B], 0.5 * wanted[B], atol=1e-6)
    assert FedAlt("me", 0).keep(found).keys() == {A, B}


def test_fedalt_takes_all_of_the_mean_where_its_own_update_is_not_in_it() -> None:
    sent = Sent(mean(pair(1), pair(2)), 3, ("east", "west"))
    found = FedAlt("me", 0).compose(sent, pair(0))
    assert np.array_equal(found.tensors[OTHER_A], sent.adapter.tensors[A])
    assert np.array_equal(found.tensors[OTHER_B], sent.adapter.tensors[B])
    alone = FedAlt("me", 0).compose(Sent(mean(pair(0)), 3, ("me",), own=pair(0)), pair(0))
    assert not alone.tensors[OTHER_B].any()


def test_who_joins_a_fedalt_run_begins_with_nothing_of_its_own() -> None:
    found = FedAlt("me", 0).compose(Sent(mean(pair(1), pair(2)), 3, ("east", "west")), {})
    assert not found.tensors[B].any() and found.tensors[OTHER_B].any()


def test_blend_lies_between_the_broadcast_adapter_and_the_own_one() -> None:
    own, broadcast = pair(0), Adapter(pair(1), {})
    falling = Blend("me", 0, share={"from": 1.0, "to": 0.0, "over": 3})
    for behind, share in ((0, 1.0), (1, 0.5), (2, 0.0), (9, 0.0)):
        found = falling.compose(Sent(broadcast, behind), own).tensors
        for name in (A, B):
            np.testing.assert_allclose(
                found[name], share * broadcast.tensors[name] + (1 - share) * own[name], atol=1e-6
            )
    assert falling.compose(Sent(broadcast, 5), {}).digest() == broadcast.digest()


def test_specialists_go_on_with_their_own_adapters_until_they_are_joined() -> None:
    own, broadcast = pair(0), Adapter(pair(1), {})
    mix = Specialists("me", 0, rounds=2)
    begun = [mix.compose(Sent(broadcast, behind), {} if behind == 0 else own).digest() for behind in range(4)]
    assert begun == [broadcast.digest(), Adapter(own, {}).digest(), broadcast.digest(), broadcast.digest()]


def test_specialists_play_as_sites_alone_until_they_are_joined(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    method = {"method": "specialist_generalist", "mix": {"name": "specialists", "rounds": 2}}
    together = fedse.run(factored(**method), tmp_path / "together")
    alone = fedse.run(factored(method="local_se"), tmp_path / "alone")
    for number, same in ((1, True), (2, True), (3, False)):
        ours, theirs = (
            json.loads((run.folder / f"rounds/{number:04d}/report.json").read_text()) for run in (together, alone)
        )
        assert [(row["successes"], row["steps"]) for row in ours["evaluation"]["worlds"]] != [] and (
            ours["evaluation"]["worlds"] == theirs["evaluation"]["worlds"]
        ) is same, f"round {number}"
        if number < 3:
            assert {name: entry["counts"] for name, entry in ours["clients"].items()} == {
                name: entry["counts"] for name, entry in theirs["clients"].items()
            }
    joined = read_adapter(together.folder / "rounds/0002/adapter")
    for name, tensor in joined.tensors.items():
        own = [read_adapter(alone.folder / f"clients/{site}/adapters/0002").tensors[name] for site in ("east", "west")]
        np.testing.assert_allclose(tensor, (own[0] + own[1]) / 2, atol=1e-6)


def test_a_specialist_that_has_learned_nothing_yet_is_alone_as_well(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    west = {"worlds": [{**SHORT_MAZE, "turn_limit": 12}], "start": "none"}
    settings = {"clients": {"east": {"worlds": [SHORT_MAZE]}, "west": west}, "exploration": {"tasks": 1}}
    method = {"method": "specialist_generalist", "mix": {"rounds": 3}}
    together = fedse.run(factored(**settings, **method), tmp_path / "together")
    alone = fedse.run(factored(**settings, method="local_se"), tmp_path / "alone")
    for number in (1, 2, 3):
        ours, theirs = (
            json.loads((run.folder / f"rounds/{number:04d}/report.json").read_text()) for run in (together, alone)
        )
        assert ours["clients"]["west"]["counts"] == theirs["clients"]["west"]["counts"], f"round {number}"
        assert ours["clients"]["west"]["metrics"] == {}, "it must not have learned"
        assert ours["evaluation"]["worlds"] == theirs["evaluation"]["worlds"], f"round {number}"


def test_rounds_in_which_everybody_was_alone_are_no_best_round_of_the_shared_adapter(
    factored: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunView.existing(fedse.run(factored(mix={"name": "specialists", "rounds": 2}), tmp_path).folder)
    falling = [{"client": "east", "world": "maze", "adapter": number, "success": 1 - number / 9} for number in range(4)]
    monkeypatch.setattr("fedse.evaluation.best_round.curves", lambda _: {"maze": falling})
    assert chosen_round(run, "best") == 2
    assert chosen_round(run, "best", "east") == 0


def test_feddpa_trains_the_own_adapter_beside_the_shared_one_and_then_the_shared_one_alone() -> None:
    broadcast = Adapter(pair(1), {"r": 2})
    mix = FedDpa("me", 0, rank=3, weight=0.25)
    both = mix.compose(Sent(broadcast, 0), {})
    np.testing.assert_allclose(both.tensors[B], 0.25 * broadcast.tensors[B])
    assert np.array_equal(both.tensors[A], broadcast.tensors[A]) and not both.tensors[OWN_B].any()
    lessons = mix.lessons(Sent(broadcast, 0), both)
    first = next(lessons)
    assert first.frozen == {A, B} and first.tensors.keys() == {A, B, OWN_A, OWN_B}
    learned = Adapter({**first.tensors, OWN_A: first.tensors[OWN_A] + 1, OWN_B: first.tensors[OWN_B] + 1}, {})
    second = lessons.send(learned)
    assert second.digest() == broadcast.digest() and not second.frozen
    with pytest.raises(StopIteration) as ended:
        lessons.send(Adapter({name: tensor - 1 for name, tensor in second.tensors.items()}, {}))
    whole = ended.value.value.tensors
    for name in (A, B):
        assert np.array_equal(whole[name], broadcast.tensors[name] - 1)
    for name in (OWN_A, OWN_B):
        assert np.array_equal(whole[name], learned.tensors[name])


class Counting(FactoredLearner):
    """Tells how many steps it took."""

    def learn(self, lesson: Lesson) -> Any:
        adapter, metrics = super().learn(lesson)
        return adapter, {**metrics, "steps": 5.0}


MIXES: dict[str, dict[str, Any]] = {
    "fedalt": {"name": "fedalt"},
    "feddpa": {"name": "feddpa", "rank": 2},
    "blend": {"name": "blend", "share": {"from": 1.0, "to": 0.0, "over": 3}},
    "specialists": {"name": "specialists", "rounds": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    factored: Callable[..., Experiment], tmp_path: Path, mix: dict[str, Any]
) -> None:
    straight = fedse.run(factored(mix=mix), tmp_path / "straight")
    fedse.run(factored(mix=mix, rounds=1), tmp_path / "stopped")
    resumed = fedse.run(factored(mix=mix), tmp_path / "stopped")
    assert resumed.adapter.digest() == straight.adapter.digest()
    assert resumed.validation["worlds"] == straight.validation["worlds"]
    kept = sorted((straight.folder / "clients").rglob("private/*.safetensors"))
    assert len(kept) == 6
    for path in kept:
        assert path.read_bytes() == (resumed.folder / path.relative_to(straight.folder)).read_bytes()
    for number in (0, 1, 2):
        then = json.loads((straight.folder / f"rounds/{number + 1:04d}/report.json").read_text())["evaluation"]
        with open_run(straight.folder) as federation:
            now = federation.server.evaluate(number, "validation")
        assert [row["successes"] for row in now["worlds"]] == [row["successes"] for row in then["worlds"]]
    assert straight.validation["macro"] > then["macro"] - 0.5


def test_with_fedalt_the_broadcast_adapter_is_the_mean_of_what_clients_keep(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(factored(mix={"name": "fedalt"}), tmp_path)
    for number in (1, 2, 3):
        own = [
            load_file(result.folder / f"clients/{name}/private/{number:04d}.safetensors") for name in ("east", "west")
        ]
        shared = read_adapter(result.folder / f"rounds/{number:04d}/adapter")
        for name, tensor in shared.tensors.items():
            np.testing.assert_allclose(tensor, (own[0][name] + own[1][name]) / 2, atol=1e-6)
    target = tmp_path / "exported"
    done = CliRunner().invoke(app, ["export", str(result.folder), str(target), "--client", "east"])
    assert done.exit_code == 0, done.output
    exported = read_adapter(target)
    for name, tensor in own[0].items():
        assert np.array_equal(exported.tensors[name], tensor)
        beside = exported.tensors[name.replace(".weight", ".residual.weight")]
        np.testing.assert_allclose(beside, own[1][name], atol=1e-5)


def test_the_beginning_is_tried_everywhere_without_what_clients_learned_later(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(factored(mix={"name": "personal", "rank": 2}), tmp_path)
    with open_run(result.folder) as federation:
        rows = transfer(federation.server, federation.clients, "validation")["rows"]
        first = federation.server.evaluate(0, "validation")
    assert rows[BEGINNING]["macro"] == first["macro"] < result.validation["macro"] - 0.2
    assert rows[SHARED]["macro"] == result.validation["macro"]


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_a_mixture_of_a_clients_own_is_not_tried_elsewhere(
    factored: Callable[..., Experiment], tmp_path: Path, mix: dict[str, Any]
) -> None:
    result = fedse.run(factored(mix=mix, rounds=1), tmp_path)
    done = CliRunner().invoke(app, ["transfer", str(result.folder)])
    assert done.exit_code == 2 and "transfer needs `mix: broadcast`" in " ".join(done.output.split()), done.output


def test_two_lessons_a_round_count_both_their_steps(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(factored(mix={"name": "feddpa", "rank": 2}, learner=f"{__name__}:Counting"), tmp_path)
    report = json.loads((result.folder / "rounds/0001/report.json").read_text())
    assert {entry["metrics"]["steps"] for entry in report["clients"].values()} == {10.0}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"mix": "fedalt", "aggregator": "fedexp"}, "use `aggregator: mean`"),
        ({"mix": "blend", "method": "local_se"}, "leave `mix` out"),
        ({"mix": {"name": "specialists", "rounds": 4}}, "ends before they are joined"),
        ({"mix": {"name": "specialists", "rounds": 1}, "participation": {"fraction": 0.5}}, "leaves clients out"),
        ({"mix": {"name": "specialists", "rounds": 2}, "clients": LATE_WEST}, "'west' has `joins: 2`"),
        ({"mix": {"name": "specialists", "rounds": 1}, "aggregator": "ffa_lora"}, "do not train and send both factors"),
        ({"mix": {"name": "specialists", "rounds": 1}, "aggregator": "fedsvd"}, "do not train and send both factors"),
        ({"mix": {"name": "specialists", "rounds": 1}, "aggregator": "tsv_merge"}, "sent further ranks"),
        ({"mix": "blend", "aggregator": "fedsa_lora"}, "clients keep a factor"),
        ({"mix": "blend", "aggregator": "flora"}, "sent further ranks"),
        ({"mix": "blend", "aggregator": "fedexp_products"}, "sent further ranks"),
        ({"mix": "blend", "aggregator": "flexlora"}, "do not belong together"),
        ({"mix": "defer_to_best", "aggregator": "fedsvd"}, "do not belong together"),
        ({"mix": "clustered", "aggregator": "compress_then_merge"}, "do not belong together"),
        ({"mix": "weight_by_gain", "aggregator": "rolora"}, "do not belong together"),
        ({"mix": "blend", "aggregator": {"name": "fedexp", "factors": "in_turn"}}, "do not belong together"),
        ({"mix": "feddpa", "aggregator": "fedsa_lora"}, "clients keep a factor"),
        ({"mix": "feddpa", "aggregator": "flora"}, "sent further ranks"),
        ({"mix": "feddpa", "learner": {"name": "imitation", "restart": True}}, "freeze a part of it"),
        ({"mix": "fedalt", "start_adapter": "somewhere"}, "would be gone after a round"),
        ({"method": "local_se", "mix": {"name": "specialists", "rounds": 1}}, "leave `mix` out"),
        ({"mix": {"name": "blend", "share": 1.5}}, "mix.share: input should be less than or equal to 1, got 1.5"),
    ],
)
def test_mixes_that_cannot_work_are_refused(factored: Callable[..., Experiment], change: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        factored(**change)


@pytest.mark.parametrize(
    "change",
    [
        {"mix": "blend", "aggregator": "ffa_lora"},
        {"mix": "personal", "aggregator": "rolora"},
        {"mix": "feddpa", "aggregator": "flexlora"},
        {"mix": {"name": "specialists", "rounds": 1}, "aggregator": "flexlora"},
    ],
)
def test_mixes_that_can_work_are_not_refused(factored: Callable[..., Experiment], change: Any) -> None:
    assert factored(**change).mix.name in str(change["mix"])


@pytest.mark.parametrize("mix", ["personal", "feddpa", "fedalt"])
def test_a_second_pair_needs_a_model_with_lora(
    table_experiment: Callable[..., Experiment], tmp_path: Path, mix: str
) -> None:
    with pytest.raises(BadInput, match=f"mix '{mix}': the model 'table' has no LoRA adapter"):
        fedse.run(table_experiment(mix=mix), tmp_path)
    assert not list(tmp_path.iterdir())
