"""Secure sums of what needs a little more than the mean: FedExP's squared lengths, and FedALT's others without one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from short_maze import SHORT_MAZE

pytest.importorskip("cryptography")

import fedse
from factored_table import FactoredLearner
from fedse.adapters.rounding import SQUARE_DIGITS
from fedse.engines.local import LocalEngine
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.experiments.stored_adapter import stored_adapter
from fedse.runs.reading import RunView
from fedse.types import ClientFailure, ClientUpdate, Lesson, Tensors

HERE = Path(__file__).stem
FOUR = {
    name: {"worlds": [{**SHORT_MAZE, "turn_limit": limit}]}
    for name, limit in (("east", 13), ("north", 12), ("south", 11), ("west", 10))
}
THREE = {name: options for name, options in FOUR.items() if name != "south"}
MASKED = {"secure_sum": {}}


@pytest.fixture
def small(factored: Callable[..., Experiment]) -> Callable[..., Experiment]:
    few = {"clients": THREE, "rounds": 2, "evaluation": {"tasks": 2, "test_tasks": 0}}
    return lambda **changes: factored(**{**few, **changes})


def told(folder: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"rounds/{number:04d}/report.json").read_text())
    return found


def kept(folder: Path, client: str, number: int) -> Tensors:
    """What a client sends with FedALT, which is what it keeps."""
    return load_file(folder / f"clients/{client}/private/{number:04d}.safetensors")


def beside(folder: Path, client: str, number: int) -> Tensors:
    """What a client that plays with the adapter after a round takes for what the others made."""
    tensors = stored_adapter(RunView(folder), number, client).tensors
    return {name.replace(".residual", ""): tensor for name, tensor in tensors.items() if ".residual" in name}


def mean(*adapters: Tensors) -> Tensors:
    return {name: np.mean([one[name].astype(np.float64) for one in adapters], axis=0) for name in adapters[0]}


def assert_near(one: Tensors, other: Tensors, away: float) -> None:
    assert one.keys() == other.keys()
    for name, tensor in other.items():
        assert np.abs(one[name] - tensor).max() < away


@pytest.mark.parametrize(
    ("aggregator", "bits"),
    [
        ({"gain": 2.5}, 32),
        ({"gain": 3.0, "epsilon": 0.1}, 64),
        ({"gain": 2.5, "factors": "B"}, 32),
        ({"gain": 2.5, "factors": "in_turn"}, 32),
        ({"gain": 9.0, "factors": "B"}, 32),
    ],
    ids=["both factors", "64 bits", "B alone", "in turn", "as far as the sum"],
)
def test_fedexp_goes_as_far_as_with_updates_in_the_clear(
    aggregator: dict[str, Any], bits: int, small: Callable[..., Experiment], tmp_path: Path
) -> None:
    # The sites are much alike: the paper's step would be the mean.
    aggregator = {"name": "fedexp", **aggregator}
    clear = fedse.run(small(aggregator=aggregator), tmp_path / "clear")
    masked = fedse.run(
        small(aggregator=aggregator, sending={"secure_sum": {"bits": bits, "largest": 32}}), tmp_path / "masked"
    )
    steps = [[told(run.folder, number)["diagnostics"]["server_step"] for number in (1, 2)] for run in (clear, masked)]
    assert min(steps[0]) > 1.05
    assert steps[0] == [3.0, 3.0] if aggregator["gain"] == 9 else max(steps[0]) < 3.0
    assert steps[1] == pytest.approx(steps[0], rel=1e-4)
    assert_near(masked.adapter.tensors, clear.adapter.tensors, 1e-4)
    diagnostics = told(masked.folder, 2)["diagnostics"]
    assert diagnostics["secure_sum"] == {"participants": sorted(THREE), "added": 3}
    assert "update_norm" not in diagnostics, "of single updates nothing is known"
    sent = [tensor for name, tensor in clear.adapter.tensors.items() if "lora_B" in name or "factors" not in aggregator]
    values = sum(tensor.size for tensor in sent)
    assert told(masked.folder, 1)["clients"]["east"]["bytes"] == bits // 8 * (values + SQUARE_DIGITS + 1)


def test_what_fedalt_puts_beside_is_what_it_is_with_updates_in_the_clear(
    small: Callable[..., Experiment], tmp_path: Path
) -> None:
    """The sum without one's own, divided by K - 1, and never one other site's."""
    clear, masked = (
        fedse.run(small(mix="fedalt", sending=sending), tmp_path / name).folder
        for name, sending in (("clear", {}), ("masked", MASKED))
    )
    for client in THREE:
        assert_near(kept(masked, client, 2), kept(clear, client, 2), 1e-5)
        others = [kept(masked, other, 2) for other in THREE if other != client]
        found = beside(masked, client, 2)
        assert_near(found, mean(*others), 1e-6)
        assert_near(found, beside(clear, client, 2), 1e-5)
        assert all(np.abs(found[name] - tensor).max() > 1e-3 for one in others for name, tensor in one.items())


@pytest.mark.parametrize("changes", [{"aggregator": "fedexp"}, {"mix": "fedalt"}], ids=["fedexp", "fedalt"])
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    changes: dict[str, Any], small: Callable[..., Experiment], tmp_path: Path
) -> None:
    straight = fedse.run(small(**changes, sending=MASKED), tmp_path / "straight")
    fedse.run(small(**changes, sending=MASKED, rounds=1), tmp_path / "stopped")
    resumed = fedse.run(small(**changes, sending=MASKED), tmp_path / "stopped")
    assert resumed.adapter.digest() == straight.adapter.digest()


class Losing(LocalEngine):
    """North does not answer in round 2."""

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        lost = ("north", "train-0002")
        return [
            ClientFailure(*lost, "RuntimeError") if (reply.client, reply.task) == lost else reply
            for reply in super().poll(seconds)
        ]


def test_after_a_void_round_a_site_takes_out_of_the_mean_what_is_in_it(
    small: Callable[..., Experiment], tmp_path: Path
) -> None:
    """What it learned in the void round is its own from then on, and in no mean."""
    folder = fedse.run(small(mix="fedalt", sending=MASKED, engine=f"{HERE}:Losing"), tmp_path).folder
    assert "north: RuntimeError" in told(folder, 2)["diagnostics"]["secure_sum"]["void"]
    assert_near(beside(folder, "east", 2), mean(kept(folder, "north", 1), kept(folder, "west", 1)), 1e-6)
    plays = stored_adapter(RunView(folder), 2, "east").tensors
    assert all(np.array_equal(plays[name], tensor) for name, tensor in kept(folder, "east", 2).items())


class NothingForNorth(FactoredLearner):
    def learn(self, lesson: Lesson) -> Any:
        return None if lesson.trajectories[0].client == "north" else super().learn(lesson)


class Silent(LocalEngine):
    """Sites that tell no counts."""

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        replies = super().poll(seconds)
        return [replace(reply, counts={}) if isinstance(reply, ClientUpdate) else reply for reply in replies]


def test_a_mean_of_two_is_not_broadcast_where_each_takes_its_own_out(
    small: Callable[..., Experiment], tmp_path: Path
) -> None:
    abstaining = {"learner": f"{HERE}:NothingForNorth", "sending": MASKED, "rounds": 1}
    run = fedse.run(small(mix="fedalt", **abstaining), tmp_path / "fedalt").folder
    assert told(run, 1)["diagnostics"]["secure_sum"]["void"] == (
        "only 2 of its 3 participants had learned something, and whoever takes an update of its own out of their mean would "
        "have a single other one"
    )
    assert told(run, 1)["adapter"] == RunView(run).digest_of(0)
    four = fedse.run(small(mix="fedalt", clients=FOUR, **abstaining), tmp_path / "four").folder
    assert told(four, 1)["diagnostics"]["contributed"] == ["east", "south", "west"]
    assert_near(beside(four, "east", 1), mean(kept(four, "south", 1), kept(four, "west", 1)), 1e-6)
    quiet = fedse.run(
        small(mix="fedalt", clients=FOUR, **abstaining, engine=f"{HERE}:Silent"), tmp_path / "quiet"
    ).folder
    assert "sites do not tell their counts" in told(quiet, 1)["diagnostics"]["secure_sum"]["void"]
    plain = fedse.run(small(**abstaining), tmp_path / "mean").folder
    assert told(plain, 1)["diagnostics"]["secure_sum"]["added"] == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": {name: THREE[name] for name in ("east", "west")}, "sending": {"secure_sum": {"min_sites": 2}}},
        {"sending": {"secure_sum": {"min_sites": 2}}},
        {"clients": {name: THREE[name] for name in ("east", "west")}, "sending": MASKED},
    ],
    ids=["two sites", "two may be all", "two of three"],
)
def test_of_two_sites_the_others_would_be_one(changes: dict[str, Any], small: Callable[..., Experiment]) -> None:
    with pytest.raises(
        BadInput, match=r"takes its own update out of the mean, and of two sites that leaves the other's"
    ):
        small(mix="fedalt", **changes)


def test_other_rules_are_refused_as_before(small: Callable[..., Experiment]) -> None:
    for name in ("fedexp_products", "norm_bounded", "flora", "tsv_merge"):
        with pytest.raises(BadInput, match=f"`aggregator: {name}` looks at single updates"):
            small(aggregator=name, sending=MASKED)
    with pytest.raises(BadInput, match="use `aggregator: mean`"):
        small(mix="fedalt", aggregator="fedexp", sending=MASKED)
