"""The conformance checker: it passes an honest world and names each broken promise."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedse.types import Task
from fedse.worlds.check import check
from fedse.worlds.maze import Maze
from fedse.worlds.world import Turn

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_the_example_passes_and_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from coin_world import CoinWorld  # type: ignore[import-not-found]

    assert [finding for finding in check(CoinWorld) if not finding.passed] == []
    assert len((EXAMPLES / "coin_world.py").read_text().splitlines()) < 60
    del sys.modules["coin_world"]


@pytest.mark.slow
def test_original_mode_reports_overlap_and_expert_rate() -> None:
    findings = {finding.name: finding for finding in check(lambda: Maze(mode="original", turn_limit=5))}
    assert all(finding.passed for finding in findings.values())
    assert "train and test share 25 tasks" in findings["splits"].detail
    assert "28.0% of 25 test tasks" in findings["expert"].detail


class Overlapping(Maze):
    def tasks(self, split: str) -> list[Task]:
        return list(super().tasks("train" if split == "test" else split))  # type: ignore[arg-type]


class Hashing(Maze):
    """Depends on the hash seed, as sets of strings do."""

    def begin(self, task: str) -> str:
        return super().begin(task) + f" {hash('maze') % 1000}"


class Dice(Maze):
    def begin(self, task: str) -> str:
        return super().begin(task) + f" {random.random()} {np.random.random()}"


class Seeding(Maze):
    def begin(self, task: str) -> str:
        np.random.seed(0)
        return super().begin(task)


class Chatty(Maze):
    def begin(self, task: str) -> str:
        sys.stdout.write("loading")
        return super().begin(task)


class Forgetful(Maze):
    def set_state(self, state: Any) -> None:
        self.begin(state[0])


class Clueless(Maze):
    def expert(self) -> tuple[str, str]:
        return "Any way will do.", self.trivial(0.0)


class Lenient(Maze):
    def act(self, action: str) -> Turn:
        turn = super().act(action)
        return turn if turn.valid else Turn(turn.observation)


class Mute(Maze):
    def act(self, action: str) -> Turn:
        turn = super().act(action)
        return turn if turn.valid else Turn("", valid=False)


class Generous(Maze):
    def legal_actions(self) -> list[str]:
        return [*super().legal_actions(), "fly"]


class Careless(Maze):
    def begin(self, task: str) -> str:
        return super().begin(task if task in self._known else "test-short-0")


class Terse(Maze):
    rules = "Find the goal."  # type: ignore[assignment]


class Foreign(Maze):
    def begin(self, task: str) -> str:
        return super().begin(task) + " →"


SHARED = {"calls": 0}


class Entangled(Maze):
    """Counts the steps of all instances together."""

    def act(self, action: str) -> Turn:
        SHARED["calls"] += 1
        turn = super().act(action)
        return Turn(f"{SHARED['calls']}: {turn.observation}", turn.valid, turn.done, turn.success, turn.score)


@pytest.mark.parametrize(
    ("world", "broken"),
    [
        (Overlapping, "splits"),
        (Hashing, "same in another process"),
        (Dice, "no global random state"),
        (Seeding, "no global random state"),
        (Chatty, "silent"),
        (Forgetful, "save and restore"),
        (Clueless, "expert"),
        (Lenient, "invalid actions and turn limit"),
        (Mute, "invalid actions and turn limit"),
        (Generous, "legal actions"),
        (Careless, "errors"),
        (Terse, "description"),
        (Foreign, "spaces"),
        (Entangled, "same task, same episode"),
    ],
)
def test_each_broken_promise_is_found(world: type[Maze], broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert [(finding.name, finding.passed) for finding in check(world, only=[broken])] == [(broken, False)]


def test_a_class_that_another_process_cannot_import_is_named() -> None:
    class Local(Maze):
        pass

    [finding] = check(Local, only=["same in another process"])
    assert not finding.passed
    assert "cannot be imported" in finding.detail


def test_the_checker_leaves_the_global_generators_as_they_were() -> None:
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), repr(np.random.get_state())
    check(Dice, only=["no global random state", "silent"])
    assert (random.getstate(), repr(np.random.get_state())) == before
