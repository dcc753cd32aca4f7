"""A control for sites that share: each learns twice by itself, and goes on with the mean of the two adapters.

    PYTHONPATH=benchmarks fedse run recipes/pairs_nano.yaml --set name=soup-s1 --set seed=1 --set method=local_se \
      --set learner.name=soup:Soup

Two sites of one world that share a mean have each other's experience, and a mean. Here is the mean without the experience:
the same trajectories in another order, from the same adapter. It learns from twice as many tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedse.adapters.means import mean_of
from fedse.learners.imitation import Imitation
from fedse.seeds import stream
from fedse.types import Learned, Lesson


class Soup(Imitation):
    """The mean of two adapters that were fitted to the same trajectories in different orders."""

    name = "soup"

    def learn_together(self, lessons: Sequence[Lesson]) -> list[Learned | None]:
        again = [lesson._replace(key=stream("again", lesson.key)) for lesson in lessons]
        both = zip(super().learn_together(lessons), super().learn_together(again), strict=True)
        return [one and other and _mean(one, other) for one, other in both]


def _mean(one: Learned, other: Learned) -> Learned:
    (adapter, metrics), (twin, of_twin) = one, other
    tokens = metrics["tokens"] + of_twin["tokens"]
    return replace(adapter, tensors=mean_of([adapter.tensors, twin.tensors])), {**metrics, "tokens": tokens}
