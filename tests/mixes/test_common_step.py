"""Own adapters and one step in common: by hand, and in whole rounds against sites that go on alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from fedse.adapters.means import mean_of
from fedse.aggregators.mean import Mean
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.experiments.stored_adapter import stored_adapter
from fedse.mixes.clustered import Clustered
from fedse.mixes.common_step import CommonStep
from fedse.plugins.schedules import Ramp
from fedse.runs.reading import RunView
from fedse.types import Adapter, Sent, Tensors
from short_maze import SHORT_MAZE

A, B = "m.lora_A.weight", "m.lora_B.weight"
MOMENTUM = {"name": "fedavgm", "nesterov": True, "learning_rate": 0.7}
SITES = {name: {"worlds": [{**SHORT_MAZE, "turn_limit": limit}]} for name, limit in (("east", 8), ("west", 12))}


def told(seed: int = 0) -> Sent:
    random = np.random.default_rng(seed)

    def adapter() -> Tensors:
        shapes = ((A, (2, 5)), (B, (6, 2)))
        return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes}

    return Sent(Adapter(adapter()), 2, (), {name: adapter() for name in ("a", "b", "c")})


def test_every_client_goes_on_with_its_own_and_all_together_begin_at_the_broadcast() -> None:
    sent = told()
    begun = {name: CommonStep(name, 0).compose(sent, {}).tensors for name in sent.library}
    for name, tensors in begun.items():
        for tensor in (A, B):
            step = sent.adapter.tensors[tensor] - np.mean([each[tensor] for each in sent.library.values()], axis=0)
            np.testing.assert_allclose(tensors[tensor], sent.library[name][tensor] + step, atol=1e-6)
    for tensor in (A, B):
        np.testing.assert_allclose(mean_of(list(begun.values()))[tensor], sent.adapter.tensors[tensor], atol=1e-6)


def test_the_step_may_be_shorter_or_change_from_round_to_round_and_a_newcomer_has_nothing_of_its_own() -> None:
    sent = told()
    own, whole = sent.library["a"][B], CommonStep("a", 0).compose(sent, {}).tensors[B]
    half = CommonStep("a", 0, weight=0.5).compose(sent, {}).tensors[B]
    np.testing.assert_allclose(half, (own + whole) / 2, atol=1e-6)
    ramp: Ramp = {"from": 1.0, "to": 0.0, "over": 5}
    third = CommonStep("a", 0, weight=ramp).compose(sent, {}).tensors[B]
    np.testing.assert_allclose(third, half, atol=1e-6)  # Two rounds are behind it: half of the way from 1 to 0.
    assert np.array_equal(CommonStep("a", 0, weight=0.0).compose(sent, {}).tensors[B], own)
    for client, given in (("new", sent), ("a", sent._replace(library={}))):
        assert CommonStep(client, 0).compose(given, {}).digest() == given.adapter.digest()


def test_a_group_takes_the_step_as_a_client_does(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = told()
    monkeypatch.setattr(Clustered, "members", lambda self, sent: ["a", "c"])
    own, plain = Clustered("a", 0, weight=1.0).compose(sent, {}).tensors, Clustered("a", 0).compose(sent, {}).tensors
    for tensor in (A, B):
        group = (sent.library["a"][tensor] + sent.library["c"][tensor]) / 2
        step = sent.adapter.tensors[tensor] - mean_of(list(sent.library.values()))[tensor]
        np.testing.assert_allclose(plain[tensor], group, atol=1e-6)
        np.testing.assert_allclose(own[tensor], group + step, atol=1e-6)


@pytest.mark.parametrize("mix", ["common_step", {"name": "clustered", "weight": 1.0}])
def test_without_a_step_beyond_the_mean_or_without_everybody_there_is_nothing_to_add(
    factored: Callable[..., Experiment], mix: Any
) -> None:
    with pytest.raises(BadInput, match="with `aggregator: mean` there is none: use an aggregator such as `fedavgm`"):
        factored(clients=SITES, mix=mix)
    factored(clients=SITES, mix=mix, aggregator=MOMENTUM)
    with pytest.raises(BadInput, match=r"`participation.fraction` leaves some out of a round"):
        factored(clients=SITES, mix=mix, aggregator=MOMENTUM, participation={"fraction": 0.5})
    factored(clients=SITES, mix="clustered", participation={"fraction": 0.5})


class SameMean(Mean):
    """Does what `mean` does and does not say so."""


@pytest.mark.slow
def test_with_a_plain_mean_everybody_is_alone_and_with_momentum_nobody_is(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    alone = fedse.run(factored(name="alone", clients=SITES, method="local_se"), tmp_path)
    mean = fedse.run(
        factored(name="mean", clients=SITES, mix="common_step", aggregator=f"{__name__}:SameMean"), tmp_path
    )
    pushed = fedse.run(factored(name="pushed", clients=SITES, mix="common_step", aggregator=MOMENTUM), tmp_path)
    for client in SITES:
        own, after_mean, after_push = (
            stored_adapter(RunView(run.folder), 3, client).tensors for run in (alone, mean, pushed)
        )
        for name, tensor in own.items():
            np.testing.assert_allclose(after_mean[name], tensor, atol=1e-5)
        assert max(np.abs(after_push[name] - own[name]).max() for name in own) > 1e-2
    rows = [[row["successes"] for row in run.validation["worlds"]] for run in (alone, mean)]
    assert rows[0] == rows[1]
