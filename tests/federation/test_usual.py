"""One client that goes far beyond the others is refused with its name, whatever the aggregator; a bad sum is not stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from fedse.aggregators.check import some_state, some_updates
from fedse.aggregators.mean import Mean
from fedse.errors import BadAggregate
from fedse.experiments.options import Experiment
from fedse.federation.checks import NOT_KEPT, CheckOptions
from fedse.federation.exchange import Exchange, ParticipationOptions
from fedse.federation.report import RoundReport
from fedse.federation.round import run_round
from fedse.federation.usual import earlier_norms, unusual
from fedse.plugins import resolve
from fedse.plugins.shipped import KNOWN
from fedse.runs.trackers import Trackers
from fedse.types import ClientUpdate, RoundTask, ServerState


class Answering:
    """An engine whose clients answer with these vectors."""

    def __init__(self, updates: Sequence[ClientUpdate]) -> None:
        self.updates = updates
        self.clients = tuple(update.client for update in updates)

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        pass

    def poll(self, seconds: float | None = None) -> Sequence[ClientUpdate]:
        return self.updates


def one_round(
    aggregator: Any, updates: Sequence[ClientUpdate], spool: Path, earlier: Sequence[float] = (), **checks: Any
) -> tuple[ServerState, RoundReport]:
    exchange = Exchange(Answering(updates), ParticipationOptions(), 0, Trackers([]))  # type: ignore[arg-type]
    return run_round(some_state(), exchange, aggregator, CheckOptions(**checks), spool, earlier=earlier)


def updates_for(aggregator: Any, clients: int = 5) -> list[ClientUpdate]:
    return [
        ClientUpdate(item.client, 5, item.read(), item.layout, item.counts, {}, (), "train-0005")
        for item in some_updates(aggregator, some_state(), clients=clients)
    ]


def hostile(update: ClientUpdate, value: float, name: str = "mallory") -> ClientUpdate:
    assert update.vector is not None
    vector = np.full_like(update.vector, value)
    return ClientUpdate(name, 5, vector, update.layout, update.counts, {}, (), "train-0005")


@pytest.mark.parametrize("value", [1e5, 1e30, -3e38])
@pytest.mark.parametrize("name", KNOWN["aggregator"])
def test_no_aggregator_is_given_what_is_out_of_all_proportion(name: str, value: float, tmp_path: Path) -> None:
    aggregator = resolve("aggregator", name)()
    honest = updates_for(aggregator)
    without, _ = one_round(aggregator, honest, tmp_path)
    following, report = one_round(aggregator, [*honest, hostile(honest[0], value)], tmp_path)
    assert list(report.refused) == ["mallory"]
    assert following.adapter.digest() == without.adapter.digest()
    assert all(np.isfinite(tensor).all() for tensor in following.adapter.tensors.values())


@pytest.mark.parametrize("name", KNOWN["aggregator"])
def test_without_checks_an_aggregate_that_is_not_finite_is_not_stored(name: str, tmp_path: Path) -> None:
    """Whatever comes of it, it is a finite adapter or an error that names the aggregator."""
    aggregator = resolve("aggregator", name)()
    honest = updates_for(aggregator)
    try:
        with np.errstate(all="ignore"):
            following, _ = one_round(
                aggregator, [*honest, hostile(honest[0], 3e38)], tmp_path, max_ratio=None, max_value=None
            )
    except BadAggregate as error:
        assert str(error).startswith(
            f"the aggregator {type(aggregator).__name__} made an adapter of round 5 that cannot"
        )
    else:
        assert all(np.isfinite(tensor).all() for tensor in following.adapter.tensors.values())


class Exploding(Mean):
    """One value of its result is whatever it was made with."""

    def __init__(self, value: float = float("inf")) -> None:
        self.value = value

    def following(self, state: ServerState, vector: Any, memory: Any = None) -> ServerState:
        return super().following(state, np.where(np.arange(len(vector)) == 0, np.float32(self.value), vector), memory)


@pytest.mark.parametrize(
    ("value", "said"), [(np.inf, "not finite"), (np.nan, "not finite"), (1e7, "above checks.max_v")]
)
def test_a_bad_aggregate_names_its_aggregator_and_stores_nothing(value: float, said: str, tmp_path: Path) -> None:
    aggregator = Exploding(value)
    with pytest.raises(BadAggregate, match=f"the aggregator Exploding made an adapter of round 5 .*{said}"):
        one_round(aggregator, updates_for(aggregator), tmp_path)


def test_a_run_with_a_bad_aggregate_has_no_such_round(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    with pytest.raises(BadAggregate, match="Exploding"):
        fedse.run(table_experiment(aggregator=f"{__name__}:Exploding"), tmp_path)
    assert list(json.loads((tmp_path / "table/manifest.json").read_text())["rounds"]) == ["0"]


def refused(*given: Any, **more: Any) -> list[str]:
    return [client for client, _ in unusual(*given, **more)]


def test_the_usual_is_the_middle_of_the_others_or_of_what_was_before() -> None:
    assert refused({"a": 1.0, "b": 50.0, "c": 2.0, "d": 1e30}, 0.0, [], 100.0) == ["d"]
    # Two of four: whoever is compared sees an honest one in the middle.
    assert refused({"a": 1.0, "b": 1.2, "c": 1e9, "d": 1e30}, 0.0, [], 100.0) == ["c", "d"]
    assert refused({"a": 1.0, "b": 1e30}, 0.0, [], 100.0) == ["b"]
    # One client alone: compared with earlier rounds and with the adapter; in the first round of an empty one, with nothing.
    assert refused({"a": 1e30}, 0.0, [], 100.0) == []
    assert refused({"a": 1e30}, 0.0, [1.0, 2.0], 100.0) == ["a"]
    assert refused({"a": 1e30}, 3.0, [], 100.0) == ["a"]
    # A tiny update does not make an honest one unusual once there is anything to compare it with.
    assert refused({"a": 1.0, "tiny": 1e-9}, 0.0, [1.1], 100.0) == []
    assert refused({"a": 1.0, "tiny": 1e-9}, 2.0, [], 100.0) == []
    # With three others the norm of the adapter, which is mostly that of its start, excuses nobody.
    assert refused({"a": 1.0, "b": 2.0, "c": 1.5, "d": 400.0}, 50.0, [], 100.0) == ["d"]
    assert refused({"a": 1.0, "b": 2.0, "d": 400.0}, 50.0, [], 100.0) == []
    # All of them may grow together.
    assert refused({"a": 500.0, "b": 700.0, "c": 600.0}, 0.0, [1.0], 100.0) == []


def test_a_lone_client_is_compared_with_its_earlier_rounds(tmp_path: Path) -> None:
    (only,) = updates_for(Mean(), clients=1)
    assert one_round(Mean(), [only], tmp_path, earlier=[1.0])[1].refused == {}
    far = hostile(only, 9e5, only.client)
    said = one_round(Mean(), [far], tmp_path, earlier=[1.0])[1].refused
    assert list(said) == [only.client] and "more than checks.max_ratio = 100 times what is usual" in said[only.client]


def test_an_update_of_which_its_site_keeps_nothing_is_not_used(tmp_path: Path) -> None:
    first, *others = updates_for(Mean(), clients=3)
    without, _ = one_round(Mean(), others, tmp_path)
    following, report = one_round(Mean(), [replace(first, counts={"diverged": 1}), *others], tmp_path)
    assert report.refused == {first.client: NOT_KEPT} and following.adapter.digest() == without.adapter.digest()


@pytest.mark.slow
def test_what_earlier_rounds_had_is_read_from_the_run(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(table_experiment(rounds=3), tmp_path)
    from fedse.runs.folder import RunFolder

    run = RunFolder.existing(result.folder)
    norms = [sorted((run.report(number) or {})["diagnostics"]["update_norm"].values()) for number in (1, 2, 3)]
    assert earlier_norms(run, 3) == [sum(pair) / 2 for pair in norms] and earlier_norms(run, 0) == []


@pytest.mark.slow
def test_a_run_whose_aggregator_does_nothing_says_so_before_its_first_round(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(table_experiment(aggregator="trimmed_mean", rounds=1), tmp_path)
    events = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
    names = [event["event"] for event in events]
    warning = events[names.index("warning")]
    assert warning["message"].startswith("trimmed_mean with aggregator.share = 0.2 leaves out nobody of 2 clients")
    assert names.index("warning") < names.index("round_started")
    plain = fedse.run(table_experiment(aggregator="median", rounds=1), tmp_path / "plain")
    assert '"warning"' not in (plain.folder / "events.jsonl").read_text()
