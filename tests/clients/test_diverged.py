"""A lesson that diverged: nothing of it is kept, its client goes on with what it had, and everybody hears of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import fedse
from factored_table import FactoredLearner
from fedse.adapters.files import read_adapter
from fedse.cli import app
from fedse.errors import NothingTrained
from fedse.experiments.options import Experiment
from fedse.federation.checks import NOT_KEPT
from fedse.federation.client_status import ClientStatus
from fedse.learners.table import TableLearner
from fedse.page.overview import overview
from fedse.page.shown import Shown
from fedse.runs.folder import RunFolder
from fedse.runs.reading import RunView
from fedse.types import Adapter, Lesson
from short_maze import SHORT_MAZE

HERE = Path(__file__).stem
Make = Callable[..., Experiment]


def wild(learned: tuple[Adapter, Any], where: str = "") -> Any:
    """One value of each tensor whose name contains this."""
    tensors = {name: tensor.copy() for name, tensor in learned[0].tensors.items()}
    for name in tensors:
        if where in name:
            tensors[name].flat[0] = np.nan
    return Adapter(tensors, learned[0].config), learned[1]


def of_west(lesson: Lesson, since: int) -> bool:
    """In a round from which on West's lessons diverge. What was explored in it is in the lesson."""
    trajectory = lesson.trajectories[0]
    return trajectory.client == "west" and max(item.round for item in lesson.attempts) >= since


class FirstRound(TableLearner):
    learns_from_attempts = True
    since = 1

    def learn(self, lesson: Lesson) -> Any:
        learned = super().learn(lesson)
        return wild(learned) if of_west(lesson, self.since) else learned


class SecondRound(FirstRound):
    since = 2


class FromItsOwn(SecondRound):
    learns_from_own_adapter = True


class Everywhere(TableLearner):
    def learn(self, lesson: Lesson) -> Any:
        return wild(super().learn(lesson))


class AllOfIt(FactoredLearner):
    """In round 2, at one site."""

    learns_from_attempts = True
    where = ""

    def learn(self, lesson: Lesson) -> Any:
        learned = super().learn(lesson)
        trained = Adapter({name: learned[0].tensors[name] for name in learned[0].tensors.keys() - lesson.start.frozen})
        frozen = {name: learned[0].tensors[name] for name in lesson.start.frozen}
        if not of_west(lesson, 2) or max(item.round for item in lesson.attempts) > 2:
            return learned
        return Adapter({**wild((trained, {}), self.where)[0].tensors, **frozen}, lesson.start.config), learned[1]


class PrivatePart(AllOfIt):
    where = "personal"


class Counting(PrivatePart):
    lessons: ClassVar[list[tuple[str, int]]] = []

    def learn(self, lesson: Lesson) -> Any:
        type(self).lessons.append((lesson.trajectories[0].client, max(item.round for item in lesson.attempts)))
        return super().learn(lesson)


def own(folder: Path, client: str, number: int) -> Adapter:
    return read_adapter(folder / f"clients/{client}/adapters/{number:04d}")


def report(folder: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"rounds/{number:04d}/report.json").read_text())
    return found


def test_a_client_that_shares_nothing_keeps_the_adapter_before(table_experiment: Make, tmp_path: Path) -> None:
    healthy = fedse.run(table_experiment(method="local_se", name="healthy"), tmp_path)
    result = fedse.run(table_experiment(method="local_se", learner=f"{HERE}:SecondRound"), tmp_path)
    assert own(result.folder, "west", 2).digest() == own(result.folder, "west", 1).digest()
    assert own(result.folder, "west", 1).digest() == own(healthy.folder, "west", 1).digest()
    assert own(result.folder, "east", 2).digest() == own(healthy.folder, "east", 2).digest()
    assert report(result.folder, 1)["refused"] == {}
    told = report(result.folder, 2)
    assert told["refused"] == {"west": NOT_KEPT}
    assert {name: entry["state"] for name, entry in told["clients"].items()} == {
        "east": ClientStatus.KEPT,
        "west": ClientStatus.REFUSED,
    }
    assert told["clients"]["west"]["counts"]["learned_from"] == 0
    assert healthy.warnings == []
    assert result.warnings == [f"1 of the 2 lessons of west could not be used, the last in round 2 ({NOT_KEPT})."]


def test_a_client_that_diverges_alone_is_told_wherever_somebody_looks(table_experiment: Make, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(table_experiment(method="local_se", learner=f"{HERE}:FirstRound").to_yaml())
    done = CliRunner().invoke(app, ["run", str(file), "--runs", str(tmp_path)])
    assert done.exit_code == 0, "the other one has learned"
    west = f"None of the 2 lessons of west could be used: it has learned nothing ({NOT_KEPT})."
    assert f"\nWARNING: {west}\nRun: " in done.stdout and done.stdout.count("WARNING") == 1
    assert f"round 1: the update of west was refused: {NOT_KEPT}" in done.stdout
    assert f"NO UPDATE: {ClientStatus.DIVERGED}" in done.stdout
    assert not own(tmp_path / "table", "west", 2).tensors["table"].any(), "as it began"
    shown = Shown.of(RunView.existing(tmp_path / "table"))
    problems = [item["text"] for item in overview(shown)["problems"]]
    assert west in problems and f"The update of west was refused: {NOT_KEPT}" in problems


@pytest.mark.parametrize("sites", [1, 2])
def test_a_run_stops_if_all_that_learn_alone_diverge(sites: int, table_experiment: Make, tmp_path: Path) -> None:
    clients = dict(list(table_experiment().clients.items())[:sites])
    with pytest.raises(NothingTrained, match=rf"^no update of round 1 could be used \(east: {NOT_KEPT}.*smaller steps"):
        fedse.run(table_experiment(method="local_se", learner=f"{HERE}:Everywhere", clients=clients), tmp_path)
    assert RunFolder.existing(tmp_path / "table").last_round() == 0


@pytest.mark.slow
def test_a_language_model_that_diverges_alone_names_its_clients(tiny_file: Path, tmp_path: Path) -> None:
    """Without the check its next episode breaks, because the policy cannot compute with such an adapter."""
    few = ["exploration.tasks=1", "evaluation.tasks=1", "start.tasks=2", "learner.batch_size=1"]
    experiment = fedse.load_experiment(tiny_file, ["method=local_se", "learner.learning_rate=1e30", *few])
    with pytest.raises(
        NothingTrained, match=r"^no update of round 1 could be used \(maze: .*; wordle: .*learning_rate"
    ):
        fedse.run(experiment, tmp_path)


@pytest.mark.parametrize("mix", ["personal", "fedalt", "feddpa"])
def test_what_stays_with_a_client_is_what_it_had(mix: str, factored: Make, tmp_path: Path) -> None:
    result = fedse.run(factored(mix=mix, learner=f"{HERE}:AllOfIt"), tmp_path)
    assert [sorted(report(result.folder, number)["refused"]) for number in (1, 2, 3)] == [[], ["west"], []]
    kept = sorted((result.folder / "clients/west/private").glob("*.safetensors"))
    assert [path.stem for path in kept] == ["0001", "0003"], "of round 2 nothing"
    assert all(np.isfinite(tensor).all() for path in kept for tensor in load_file(path).values())
    assert report(result.folder, 3)["diagnostics"]["contributed"] == ["east", "west"]
    assert result.warnings == []


def test_who_goes_on_from_its_own_adapter_goes_on_from_what_it_began_the_diverged_lesson_with(
    factored: Make, tmp_path: Path
) -> None:
    result = fedse.run(factored(mix={"name": "blend", "share": 0.25}, learner=f"{HERE}:AllOfIt"), tmp_path)
    assert report(result.folder, 2)["refused"].keys() == {"west"}
    own, kept = (load_file(result.folder / f"clients/west/private/{number:04d}.safetensors") for number in (1, 2))
    broadcast = read_adapter(result.folder / "rounds/0001/adapter").tensors
    for name, tensor in kept.items():
        np.testing.assert_allclose(tensor, 0.25 * broadcast[name] + 0.75 * own[name], atol=1e-6)


def test_no_lesson_follows_one_that_diverged(factored: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "lessons", [])
    fedse.run(factored(mix="feddpa", learner=f"{HERE}:Counting", rounds=2), tmp_path)
    assert Counter(Counting.lessons) == {("east", 1): 2, ("west", 1): 2, ("east", 2): 2, ("west", 2): 1}


def test_a_learner_is_not_handed_what_diverged(table_experiment: Make, tmp_path: Path) -> None:
    result = fedse.run(table_experiment(learner=f"{HERE}:FromItsOwn"), tmp_path)
    notes = {
        name: [path.stem for path in sorted((result.folder / f"clients/{name}/state/learner").glob("*.safetensors"))]
        for name in ("east", "west")
    }
    assert notes == {"east": ["0001", "0002"], "west": ["0001"]}


def test_of_a_lesson_whose_private_part_diverged_nothing_is_sent(factored: Make, tmp_path: Path) -> None:
    result = fedse.run(factored(mix="personal", learner=f"{HERE}:PrivatePart", rounds=2), tmp_path)
    told = report(result.folder, 2)
    assert told["refused"] == {"west": NOT_KEPT} and told["diagnostics"]["contributed"] == ["east"]
    assert told["clients"]["west"]["bytes"] == 0


def test_a_sum_goes_on_without_a_lesson_whose_private_part_diverged(factored: Make, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    sites = {name: {"worlds": [SHORT_MAZE]} for name in ("east", "north", "west")}
    changes = {"clients": sites, "sending": {"secure_sum": {}}, "rounds": 2}
    result = fedse.run(factored(mix="personal", learner=f"{HERE}:PrivatePart", **changes), tmp_path)
    told = report(result.folder, 2)
    assert told["refused"] == {"west": NOT_KEPT} and told["diagnostics"]["contributed"] == ["east", "north"]
    assert told["diagnostics"]["secure_sum"] == {"participants": ["east", "north", "west"], "added": 2}


def test_nothing_is_played_with_an_adapter_that_diverged(table_experiment: Make, tmp_path: Path) -> None:
    measuring = {"tasks": 5, "test_tasks": 0, "after_learning": 2}
    result = fedse.run(table_experiment(learner=f"{HERE}:FirstRound", evaluation=measuring), tmp_path)
    for number in (1, 2):
        clients = report(result.folder, number)["clients"]
        assert "after_learning" in clients["east"]["probes"] and "after_learning" not in clients["west"]["probes"]
