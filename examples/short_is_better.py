"""A judge and a learner of one's own: successes that took fewer turns count for more.

    python examples/short_is_better.py

The judge says what an exploration is worth; the world's own outcome and score stay as they are. The learner weighs what
it imitates by that worth. Both are one method, and go with any world. The learner is one for the model `table`, which shows
the idea in seconds; for a language model, inherit from `fedse.learners.imitation.Imitation` in the same way. Whether an idea
helps is for a measurement to say, and here it makes no difference: 52, 40, 8, 32 and 28 % without it (seeds 0 to 4), 44, 40,
24, 36 and 28 % with it.
"""

import tempfile

import numpy as np

import fedse
from fedse.judges.world import WorldJudge
from fedse.learners.table import TableLearner
from fedse.models.table import TENSOR
from fedse.types import Adapter

TASKS = 25


class ByTurns(WorldJudge):
    """A success is worth 1 divided by its turns; a failure nothing."""

    def rewards(self, trajectory):
        return {"by_turns": trajectory.score / len(trajectory.steps)}


class Weighted(TableLearner):
    """Counts each action by its trajectory's reward, as a multiple of the mean reward of all that is remembered."""

    def learn(self, lesson):
        counts = np.zeros((self.model.rows, len(self.model.actions)))
        mean = sum(trajectory.reward for trajectory in lesson.trajectories) / max(1, len(lesson.trajectories))
        for trajectory in lesson.trajectories:
            worth = trajectory.reward / mean
            for step in trajectory.steps:
                if step.valid and step.action in self.model.actions:
                    counts[self.model.row(step.observation), self.model.actions.index(step.action)] += worth
        seen = counts.sum(axis=1) > 0
        if not seen.any():
            return None  # Nothing to learn from: the client sends no update in this round.
        table = lesson.start.tensors[TENSOR].copy()
        loss = float(np.square(table[seen] - np.log1p(counts[seen])).mean())
        table[seen] = np.log1p(counts[seen])
        return Adapter({TENSOR: table}, lesson.start.config), {"loss": loss}


def success(learner, seed=0) -> float:
    """Validation success after three rounds in the original Maze, without demonstrations."""
    experiment = fedse.Experiment(
        name="short_is_better",
        seed=seed,
        rounds=3,
        model="table",
        policy="table",
        judge=ByTurns,
        learner=learner,
        clients={"here": {"worlds": [{"name": "maze", "mode": "original"}]}},
        start="none",
        exploration={"tasks": 20, "attempts": 4},
        evaluation={"tasks": TASKS, "test_tasks": 0},
    )
    with tempfile.TemporaryDirectory() as runs:
        (row,) = fedse.run(experiment, runs).validation["worlds"]
    return row["success"]


def main() -> None:
    for learner in ("table", Weighted):
        print(f"{getattr(learner, '__name__', learner)}: {100 * success(learner):.0f} % of {TASKS} validation tasks")
    print("One seed and few tasks, no result: it shows how a learner is plugged in. Over five seeds it is no better.")


if __name__ == "__main__":
    main()
