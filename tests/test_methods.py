"""Methods as words: what they expand to, and that each is the same loop with other switches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from fedse.adapters.files import read_adapter
from fedse.errors import BadInput
from fedse.experience.buffer import read_file
from fedse.experience.journal import Journal
from fedse.experiments.methods import METHODS
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run, stored_experiment
from fedse.federation.client_status import ClientStatus
from fedse.runs.folder import RunFolder
from fedse.types import Lesson, Purpose
from short_maze import SHORT_MAZE

Make = Callable[..., Experiment]
SLOW = {"name": "table", "rate": 0.5}


@pytest.fixture
def make(table_experiment: Make) -> Make:
    """Two different mazes and a learner that does not settle in one round."""

    def build(**changes: Any) -> Experiment:
        return table_experiment(
            **{"learner": SLOW, "exploration": {"tasks": 6}, "evaluation": {"tasks": 3, "test_tasks": 4}, **changes}
        )

    return build


def report(folder: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"rounds/{number:04d}/report.json").read_text())
    return found


def rows(result: Any, *keys: str) -> list[tuple[Any, ...]]:
    """The test rows without the names of whoever played them."""
    return sorted(tuple(row[key] for key in ("successes", "episodes", "steps", *keys)) for row in result.test["worlds"])


@pytest.mark.parametrize("word", METHODS)
def test_a_word_is_written_out_and_read_back(word: Any, make: Make, tmp_path: Path) -> None:
    experiment = make(method=word, rounds=20)
    for key, value in METHODS[word].items():
        found = getattr(experiment, key)
        assert getattr(found, "name", found) == value
    (tmp_path / "again.yaml").write_text(experiment.to_yaml())
    assert fedse.load_experiment(tmp_path / "again.yaml") == experiment


def test_switches_without_a_word_find_their_word(make: Make) -> None:
    assert make().method == "fed_se"
    assert make(exploring=False, sharing="none").method == "local"
    assert make(pooled=True).method == "centralized_se"
    assert make(exploring=False, aggregator="size_weighted").method == "fedit"
    assert make(rounds=1, mix={"name": "specialists", "rounds": 1}).method == "specialist_generalist"
    assert make(rounds=4, method="specialist_generalist", mix={"rounds": 3}).mix.options == {"rounds": 3}
    mixture = make(exploring=False)
    assert mixture.method is None
    assert Experiment.model_validate(mixture.model_dump(mode="json")) == mixture


def test_a_word_and_a_switch_that_contradicts_it_are_refused(tmp_path: Path, tiny_file: Path) -> None:
    for settings, sentence in [
        (["method=fedit", "exploring=true"], "method 'fedit' means `exploring: false`, and the experiment says"),
        (
            ["method=fedit", "aggregator=mean"],
            "`aggregator: size_weighted`, and the experiment says `aggregator: mean`",
        ),
        (["method=local_se", "sharing=all"], "means `sharing: none`"),
        (["method=fed_sea"], "method: input should be 'fed_se'"),
        (["method=local", "start=none"], "`start: none` gives client 'maze' nothing"),
        (["method=fedit", "buffer.history=false"], "explores nothing"),
        (["method=local_se", "clients.maze.learns=false"], "nobody shares with it"),
        (["clients.maze.learns=false", "clients.wordle.learns=false"], "nobody would learn"),
        (["pooled=true", "sharing=none"], "nobody to share with"),
        (["method=local_se", "participation.fraction=0.5"], "wait for nobody: leave `fraction`"),
        (["method=local_se", "engine=flower"], "need no connection"),
    ]:
        with pytest.raises(BadInput) as raised:
            fedse.load_experiment(tiny_file, settings)
        assert sentence in str(raised.value), raised.value
    assert fedse.load_experiment(tiny_file, ["method=fedit", "exploring=false", "aggregator=size_weighted"])


@pytest.mark.parametrize("word", ["local", "local_se"])
def test_a_client_that_shares_nothing_is_that_client_alone_bit_for_bit(word: str, make: Make, tmp_path: Path) -> None:
    together = fedse.run(make(method=word, name="together"), tmp_path)
    alone = {}
    for name, options in make().clients.items():
        experiment = make(name=f"only_{name}", clients={name: options}, exploring=word == "local_se")
        alone[name] = fedse.run(experiment, tmp_path)
        for number in (1, 2):
            own = read_adapter(together.folder / f"clients/{name}/adapters/{number:04d}")
            assert own.digest() == read_adapter(alone[name].folder / f"rounds/{number:04d}/adapter").digest()
    assert together.test is not None
    assert together.test["worlds"] == [row for name in sorted(alone) for row in (alone[name].test or {})["worlds"]]
    last = report(together.folder, 2)
    assert {entry["state"] for entry in last["clients"].values()} == {ClientStatus.KEPT}
    assert {entry["bytes"] for entry in last["clients"].values()} == {0}
    assert not together.adapter.tensors["table"].any()


def test_a_run_that_shares_nothing_goes_on_where_it_stopped(make: Make, tmp_path: Path) -> None:
    whole = fedse.run(make(method="local_se"), tmp_path / "whole")
    broken = fedse.run(make(method="local_se"), tmp_path / "broken")
    RunFolder.existing(broken.folder).fall_back(1, [])
    again = fedse.run(make(method="local_se"), tmp_path / "broken")
    assert again.test["worlds"] == whole.test["worlds"]
    for name in make().clients:
        first, second = (read_adapter(run.folder / f"clients/{name}/adapters/0002") for run in (whole, again))
        assert first.digest() == second.digest()


def played(folder: Path, name: str, number: int) -> list[tuple[Any, ...]]:
    explored = [
        item
        for item in Journal(folder / "clients" / name / "episodes").read(f"{number:04d}")
        if item.purpose is Purpose.EXPLORE
    ]
    return sorted((item.task, item.attempt, [step.reply for step in item.steps]) for item in explored)


def test_a_pooled_client_has_the_experience_of_those_it_stands_for(make: Make, tmp_path: Path) -> None:
    apart = fedse.run(make(method="fed_se", name="apart"), tmp_path)
    pooled = fedse.run(make(method="centralized_se", name="pooled"), tmp_path)
    names = list(make().clients)
    # The same draws in the same worlds: the first round explores exactly the same.
    assert played(pooled.folder, "pooled", 1) == sorted(
        item for name in names for item in played(apart.folder, name, 1)
    )

    def ids(path: Path) -> list[tuple[int, ...]]:
        return sorted(item.token_ids for item in read_file(path) if item.round <= 1)

    buffers = [apart.folder / "clients" / name / "buffer.sqlite" for name in names]
    assert ids(pooled.folder / "clients/pooled/buffer.sqlite") == sorted(item for path in buffers for item in ids(path))
    counts = [report(run.folder, 2)["clients"] for run in (apart, pooled)]
    explored = [sum(entry["counts"]["explored"] for entry in clients.values()) for clients in counts]
    assert explored == [12, 12], "equal budget"
    assert [row["world"] for row in pooled.test["worlds"]] == ["maze", "maze#2"]


def test_static_methods_learn_from_the_same_demonstrations_and_nothing_else(make: Make, tmp_path: Path) -> None:
    shown = []
    for word in ("local", "centralized", "fedit"):
        result = fedse.run(make(method=word, name=word), tmp_path)
        held = [item for path in result.folder.glob("clients/*/buffer.sqlite") for item in read_file(path)]
        assert {item.purpose for item in held} == {Purpose.DEMONSTRATE}
        shown.append(sorted((item.task, item.token_ids) for item in held))
        assert all(entry["counts"]["explored"] == 0 for entry in report(result.folder, 2)["clients"].values())
    assert shown[0] == shown[1] == shown[2]


def test_fedit_weighs_clients_by_what_they_learned_from(make: Make, tmp_path: Path) -> None:
    clients = {
        "large": {"worlds": [SHORT_MAZE, {**SHORT_MAZE, "turn_limit": 9}]},
        "small": {"worlds": [SHORT_MAZE]},
    }
    federated = fedse.run(make(method="fedit", clients=clients, rounds=1), tmp_path)
    apart = fedse.run(make(method="local", clients=clients, rounds=1, name="apart"), tmp_path)
    sizes = {name: entry["counts"]["learned_from"] for name, entry in report(federated.folder, 1)["clients"].items()}
    assert sizes["large"] > sizes["small"] == 3
    own = {name: read_adapter(apart.folder / f"clients/{name}/adapters/0001").tensors["table"] for name in clients}
    expected = (sizes["large"] * own["large"].astype(np.float64) + 3 * own["small"]) / sum(sizes.values())
    np.testing.assert_array_equal(federated.adapter.tensors["table"], expected.astype(np.float32))


def test_pretrained_plays_no_round_and_measures_the_beginning(make: Make, tmp_path: Path) -> None:
    result = fedse.run(make(method="pretrained"), tmp_path)
    first = report(fedse.run(make(name="evolving", rounds=1), tmp_path).folder, 1)
    assert [path.name for path in (result.folder / "rounds").iterdir()] == ["0000"]
    assert json.loads(json.dumps(result.validation["worlds"])) == first["evaluation"]["worlds"]


def test_what_nobody_learns_from_need_not_be_there(make: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read missing\.json"):
        fedse.run(make(method="local", start="missing.json"), tmp_path)
    fedse.run(make(method="pretrained", start="missing.json", evaluation={"tasks": 1, "test_tasks": 0}), tmp_path)


def test_a_client_that_only_measures_changes_nothing(make: Make, tmp_path: Path) -> None:
    both = make().clients
    alone = fedse.run(make(clients={"east": both["east"]}, name="alone"), tmp_path)
    watching = {"east": both["east"], "west": {**both["west"].model_dump(mode="json"), "learns": False}}
    watched = fedse.run(make(clients=watching, name="watched"), tmp_path)
    assert watched.adapter.digest() == alone.adapter.digest()
    assert {row["client"] for row in watched.test["worlds"]} == {"east", "west"}
    entry = report(watched.folder, 2)["clients"]["west"]
    assert (entry["state"], entry["counts"]["explored"], entry["counts"]["buffer"]) == (ClientStatus.MEASURED, 0, 0)

    pooled = fedse.run(make(clients=watching, name="pooled", pooled=True), tmp_path)
    assert {row["client"] for row in pooled.test["worlds"]} == {"pooled", "west"}


class RemembersRounds:
    """A learner that leaves behind which rounds it was given."""

    seen: list[list[int]]

    def __init__(self, model: Any) -> None:
        self.model = model

    def learn(self, lesson: Lesson) -> Any:
        from fedse.learners.table import TableLearner

        type(self).seen.append(sorted({item.round for item in lesson.trajectories}))
        return TableLearner(self.model).learn(lesson)


def test_without_history_a_round_learns_from_what_is_new_alone(make: Make, tmp_path: Path) -> None:
    given = {}
    for history in (True, False):
        RemembersRounds.seen = []
        experiment = make(
            name=f"history_{history}",
            rounds=3,
            exploration={"tasks": 25},
            learner=f"{__name__}:RemembersRounds",
            buffer={"history": history},
            clients={"east": make().clients["east"]},
        )
        fedse.run(experiment, tmp_path)
        given[history] = RemembersRounds.seen
    assert given == {True: [[0, 1], [0, 1, 2], [0, 1, 2, 3]], False: [[0, 1], [2], [3]]}


@pytest.mark.slow
def test_methods_go_with_a_language_model(tiny_experiment: Experiment, tmp_path: Path) -> None:
    content = tiny_experiment.model_dump(mode="json", exclude={"method", "learning", "exploring", "sharing", "pooled"})
    small = {**content, "rounds": 1, "start": {"tasks": 2}, "evaluation": {"tasks": 1, "test_tasks": 1}}
    result = fedse.run(Experiment.model_validate({**small, "method": "local"}), tmp_path)
    own = [read_adapter(result.folder / f"clients/{name}/adapters/0001").digest() for name in ("maze", "wordle")]
    assert len({*own, result.adapter.digest()}) == 3
    federation = open_run(result.folder)
    assert federation.server.evaluate(1, "test")["worlds"] == result.test["worlds"]
    assert stored_experiment(RunFolder.existing(result.folder)).method == "local"


def test_an_experiment_that_only_python_made_is_checked_too(make: Make) -> None:
    with pytest.raises(BadInput, match="take one of the two out"):
        make(method="local", pooled=True)
