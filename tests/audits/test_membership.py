"""`fedse audit` finds members where an adapter has learned them by heart, and nobody where nothing was learned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedse
from fedse.adapters.plan import TensorPlan
from fedse.audits import candidates as candidates_room
from fedse.audits.candidates import candidates
from fedse.audits.likelihood import losses
from fedse.audits.membership import alike, audit
from fedse.audits.seats import CONTROL, HUB, HUB_OF_A_SUM, OTHER_SITE, READER, attacks, seen
from fedse.cli import app
from fedse.cli.audit_tables import audit_table
from fedse.cli.tables import markdown
from fedse.errors import BadInput
from fedse.experience.buffer import read_file
from fedse.experiments.assembling import Federation
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.experiments.transfer import own_adapter
from fedse.networks.swap import load_adapter, log_probabilities
from fedse.runs.folder import RunFolder
from fedse.starts.demonstrations import demonstrate
from fedse.types import Adapter, Sent, Tensors, Trajectory

BARE = {"rules": "bare", "observation_length": "brief"}


CRAFT = {"name": "textcraft", **BARE, "shallowest": 1, "deepest": 1}
MAZE = {"name": "maze", **BARE, "shortest": 3, "longest": 5}
MOMENTUM = {"name": "fedavgm", "nesterov": True, "learning_rate": 0.7}


def experiment(**changes: Any) -> Experiment:
    content: dict[str, Any] = {
        "name": "heart",
        "rounds": 1,
        "model": {"name": "tiny", "width": 32, "layers": 1, "context": 1024, "lora": {"rank": 16}, "threads": 1},
        "clients": {"craft": {"worlds": [CRAFT]}},
        "start": {"name": "demonstrations", "tasks": 12},
        "exploration": {"tasks": 2},
        "evaluation": {"tasks": 1, "test_tasks": 0},
        "learner": {"learning_rate": 0.03, "epochs": 24, "batch_size": 4},
        "policy": {"slots": 8, "reply_tokens": 4},
    }
    return Experiment(**{**content, **changes})


@pytest.fixture(autouse=True)
def few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates_room, "MOST_OTHERS", 40)


@pytest.fixture(scope="module")
def two_sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clients = {"craft": {"worlds": [CRAFT]}, "maze": {"worlds": [MAZE]}}
    made = experiment(clients=clients, learner={"epochs": 1}, exploration={"tasks": 20}, start={"tasks": 5})
    return fedse.run(made, tmp_path_factory.mktemp("audit")).folder


@pytest.fixture
def federation(two_sites: Path) -> Iterator[Federation]:
    with open_run(two_sites) as opened:
        yield opened


def maze_of(federation: Federation) -> Any:
    return next(client for client in federation.clients if client.name == "maze")


@pytest.mark.torture
def test_an_adapter_that_learned_by_heart_tells_its_members_and_the_first_one_does_not(tmp_path: Path) -> None:
    folder = fedse.run(experiment(), tmp_path).folder
    before = {path: path.read_bytes() for path in folder.glob("rounds/**/*") if path.is_file()}
    with open_run(folder) as opened:
        found = audit(opened, opened.clients[0], 1)
    (world,) = found["worlds"]
    rows = {(row["seat"], row["attack"]): row for row in world["rows"]}
    assert rows[HUB, "loss"]["auc"] > 0.8 and rows[HUB, "change in the round"]["auc_interval"][0] > 0.6
    assert abs(rows[CONTROL, "loss"]["auc"] - 0.5) < 0.2 and alike(world)
    assert rows[READER, "loss"] == {**rows[OTHER_SITE, "loss"], "seat": READER}, "the only round is the last"
    assert rows[HUB, "loss"] == {**rows[OTHER_SITE, "loss"], "seat": HUB}, "the mean of one update is the update"
    assert 10 <= world["members"] <= 12 and 30 <= world["others"] <= 40
    stored = json.loads((folder / "evaluations/audit-0001-craft.json").read_text())
    assert stored == json.loads(json.dumps(found))
    assert {path: path.read_bytes() for path in before} == before
    shown = markdown(audit_table(found, world))
    assert "nobody (control)" in shown and f"{rows[HUB, 'loss']['auc']:.3f}" in shown and "do not read" not in shown
    rows[CONTROL, "loss"]["auc_interval"] = (0.6, 0.9)
    assert "do not read the other rows" in markdown(audit_table(found, world))


def test_the_hub_s_view_is_what_the_client_sent(federation: Federation) -> None:
    everything = [seen(federation.server, federation.clients, client.name, 1) for client in federation.clients]
    updates = [found.update for found in everything if found is not None and found.update is not None]
    assert len(updates) == 2
    for name, tensor in federation.server.load(1).adapter.tensors.items():
        mean = np.mean([update.tensors[name].astype(np.float64) for update in updates], axis=0)
        np.testing.assert_array_equal(mean.astype(np.float32), tensor)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"aggregator": MOMENTUM}, True),
        ({"aggregator": MOMENTUM, "sending": {"secure_sum": {}}}, True),
        ({"aggregator": "ffa_lora", "sending": {"secure_sum": {}}}, False),
        (
            {
                "aggregator": {"name": "dp_sum", "clip": 0.5, "noise_multiplier": 1.0, "simulation": True},
                "sending": {"secure_sum": {}},
            },
            False,
        ),
        ({"aggregator": "fedsvd"}, True),
        ({"aggregator": "median"}, False),
    ],
)
def test_the_hub_of_a_sum_sees_the_mean_where_it_broadcasts_something_else(
    changes: dict[str, Any], told: bool, tmp_path: Path
) -> None:
    clients = {"craft": {"worlds": [CRAFT]}, "maze": {"worlds": [MAZE]}, "other": {"worlds": [MAZE]}}
    made = experiment(clients=clients, learner={"epochs": 1}, start={"tasks": 4}, **changes)
    with open_run(fedse.run(made, tmp_path).folder) as opened:
        found = [seen(opened.server, opened.clients, client.name, 1) for client in opened.clients]
        learned = [own_adapter(opened.server, client, 1) for client in opened.clients]
    summed = "sending" in changes
    for item in found:
        assert item is not None
        seats = {attack.seat for attack in attacks(item)}
        assert (HUB_OF_A_SUM in seats) == told == (item.mean is not None) and (HUB in seats) == (not summed)
        for name, tensor in ({} if item.mean is None else item.mean.tensors).items():
            updates = [adapter.tensors[name] for adapter in learned if adapter is not None]
            assert len(updates) == 3
            np.testing.assert_allclose(tensor, np.mean(updates, axis=0), rtol=1e-6, atol=1e-9)


def test_members_were_learned_from_and_others_by_nobody(federation: Federation, two_sites: Path) -> None:
    client = maze_of(federation)
    (found,) = candidates(client, [1], (), 1024)
    kept = read_file(two_sites / "clients/maze/buffer.sqlite")
    explored = {item.task for item in client.experience.buffer.attempts(2)}
    assert {item.token_ids for item in found.members} <= {item.token_ids for item in kept}
    assert not {item.token_ids for item in found.others} & {item.token_ids for item in kept}
    assert len(explored) == 20 and not explored & {item.task for item in [*found.members, *found.others]}
    training = {task.id for place in client.site.places.values() for task in place.tasks("train")}
    assert {item.task for item in [*found.members, *found.others]} <= training
    taken = found.members[0].token_ids
    (fewer,) = candidates(client, [1], {taken, found.others[0].token_ids}, 1024)
    assert (len(found.members) - len(fewer.members), len(found.others) - len(fewer.others)) == (1, 1)


def test_a_start_that_the_expert_does_not_repeat_is_refused(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def otherwise(*arguments: Any) -> Trajectory:
        shown = demonstrate(*arguments)
        return replace(shown, token_ids=shown.token_ids[:-1], train_mask=shown.train_mask[:-1])

    monkeypatch.setattr(candidates_room, "demonstrate", otherwise)
    with pytest.raises(BadInput, match="something else than what the expert of 'maze' shows"):
        candidates(maze_of(federation), [1], (), 1024)


def test_losses_are_those_of_a_plain_forward_pass(federation: Federation) -> None:
    (found,) = candidates(maze_of(federation), [1], (), 1024)
    some = [*found.members[:3], *found.others[:2]]
    assert federation.components is not None
    model: Any = federation.components.model
    for number in (0, 1):
        adapter = federation.server.load(number).adapter
        packed = losses(model, adapter, some)
        load_adapter(model.network, adapter)
        for item, loss in zip(some, packed, strict=True):
            own = log_probabilities(model.network, list(item.token_ids)).numpy()[np.array(item.train_mask[1:])]
            assert loss == pytest.approx(-own.mean(), rel=1e-4)


@pytest.mark.slow
def test_the_command_tells_each_client_or_why_not(
    table_experiment: Callable[..., Experiment], two_sites: Path, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["audit", str(two_sites)])
    assert done.exit_code == 0, done.output
    assert (
        "craft, textcraft:" in done.stdout
        and "maze, maze: 5 members and" in done.stdout
        and "nothing is said" in done.stdout
    )
    assert [line.split(" in round")[0] for line in done.stderr.splitlines()] == ["auditing craft", "auditing maze"]
    as_json = CliRunner().invoke(app, ["audit", str(two_sites), "--client", "maze", "--json"])
    assert [found["client"] for found in json.loads(as_json.stdout)] == ["maze"] and "1 of 1" in as_json.stderr
    fedse.run(table_experiment(rounds=1), tmp_path)
    RunFolder.create(tmp_path / "hub", table_experiment().to_yaml(), "digest")
    for arguments, sentence in [
        ((tmp_path / "table",), "it needs a language model in this process"),
        ((tmp_path / "hub",), "a hub's folder has none"),
        ((two_sites, "--client", "mazes"), "did you mean 'maze'?"),
        ((two_sites, "--round", "7"), "has no round 7"),
    ]:
        refused = CliRunner().invoke(app, ["audit", *map(str, arguments)])
        assert refused.exit_code == 2 and sentence in " ".join(refused.stderr.split()), refused.output
    assert not list(tmp_path.glob("*/evaluations/audit-*"))


def test_a_run_without_demonstrations_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    folder = fedse.run(experiment(start="none", learner={"epochs": 1}), tmp_path).folder
    refused = CliRunner().invoke(app, ["audit", str(folder)])
    assert refused.exit_code == 2 and "auditing" not in refused.stderr
    assert "began without demonstrations" in " ".join(refused.stderr.split())


class Halved:
    """A mix that plays with something else than what is broadcast."""

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        return Adapter({name: tensor / 2 for name, tensor in sent.adapter.tensors.items()}, sent.adapter.config)


@pytest.mark.parametrize("change", [{"plan": TensorPlan(sent="A")}, {"mix": Halved()}])
def test_what_others_do_not_see_is_not_taken_for_seen(federation: Federation, change: dict[str, Any]) -> None:
    client = maze_of(federation)
    for name, value in change.items():
        setattr(client.adapters, name, value)
    with pytest.raises(BadInput, match="keeps part of its adapter to itself"):
        seen(federation.server, federation.clients, client.name, 1)
