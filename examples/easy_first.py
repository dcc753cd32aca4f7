"""A curriculum of one's own: explore the categories that go best, and a little of everything else.

    python examples/easy_first.py

runs it in the original Maze with a table in place of a model and prints where exploration went. An agent that rarely
succeeds learns little from what it never solves; an easy category gives it something to learn from.
"""

import tempfile
from collections import Counter

import fedse
from fedse.curricula.uniform import Uniform
from fedse.seeds import generator


class EasyFirst(Uniform):
    """Three of four tasks are of the category with the best success so far."""

    def chosen(self, label, round, past):
        # Anew in every round, by the seed: a round that is repeated after a stop is the same.
        tasks = super().chosen(label, round, past)
        tried, solved = Counter(), Counter()
        for attempt in past.attempts(label):
            tried[attempt.category] += 1
            solved[attempt.category] += attempt.outcome == "success"
        if not solved.total():
            return tasks
        best = max(sorted(tried), key=lambda category: solved[category] / tried[category])
        favourites = [task for task in tasks if task.category == best]
        others = [task for task in tasks if task.category != best]
        order = []
        for draw in generator(self.site.seed, self.site.name, round, label, "easy first").random(len(tasks)):
            order.append((favourites if favourites and (draw < 0.75 or not others) else others).pop(0))
        return order


def main() -> None:
    experiment = fedse.Experiment(
        name="easy_first",
        rounds=4,
        model="table",
        policy="table",
        learner="table",
        curriculum=EasyFirst,
        clients={"here": {"worlds": [{"name": "maze", "mode": "original"}]}},
        start="none",
        exploration={"tasks": 6, "attempts": 6},
        evaluation={"tasks": 10, "test_tasks": 0},
    )
    with tempfile.TemporaryDirectory() as runs:
        result = fedse.run(experiment, runs)
        for number, explored in explored_by_round(result.folder).items():
            print(f"round {number}:", ", ".join(f"{category} {count}" for category, count in sorted(explored.items())))


def explored_by_round(run):
    """How many episodes of each category a site explored, read from the site's own buffer."""
    import sqlite3

    with sqlite3.connect(run / "clients/here/buffer.sqlite") as buffer:
        rows = buffer.execute("SELECT round, category FROM attempts").fetchall()
    rounds = {number: Counter() for number in sorted({number for number, _ in rows})}
    for number, category in rows:
        rounds[number][category] += 1
    return rounds


if __name__ == "__main__":
    main()
