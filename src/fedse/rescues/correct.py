"""Correction: where a failure left the way of a success at the same task, after EvoCUA (Xue and others, arXiv 2601.15876).

Two attempts at a task see the same as long as they act alike. At the first turn in which their actions differ, the reply of
the success is the right one. What is remembered is the failure up to that turn and the success from there on, and of it that
one reply is learned: the others are read. Of several successes the one is taken that the failure kept to longest. In the
paper a model that is shown both finds the turn and words the reply, and what is learned is a preference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fedse.clients.site import Site
from fedse.rollouts.replaying import reply_spans
from fedse.types import Adapter, Outcome, Played, Purpose, Trajectory


class Correct:
    """Puts the reply of a success where a failure at the same task first acted otherwise."""

    needs_several_attempts = True

    def __init__(self, site: Site) -> None:
        self.site = site

    def rescue(self, explored: Sequence[Trajectory], entering: Callable[[], Adapter]) -> Played:
        del entering
        yield from ()  # A rescue may ask for episodes of its own; this one has nothing to ask.
        groups: dict[tuple[str, str], list[Trajectory]] = {}
        for item in explored:
            groups.setdefault((item.world, item.task), []).append(item)
        return [corrected for group in groups.values() for corrected in self._corrected(group)]

    def _corrected(self, group: Sequence[Trajectory]) -> list[Trajectory]:
        successes = [item for item in group if item.outcome is Outcome.SUCCESS and reply_spans(item)]
        free = max(item.attempt for item in group) + 1
        found: list[Trajectory] = []
        for failure in group:
            if failure.outcome is Outcome.FAILURE and reply_spans(failure) and successes:
                nearest = max(successes, key=lambda success: alike(failure, success))
                made = spliced(failure, nearest, alike(failure, nearest))
                if made is not None and len(made.token_ids) <= self.site.context:
                    found.append(replace(made, attempt=free + len(found)))
        return found


def alike(one: Trajectory, other: Trajectory) -> int:
    """Turns in which two attempts at a task see and do the same."""
    for number, (ours, theirs) in enumerate(zip(one.steps, other.steps, strict=False)):
        if (ours.observation, ours.action) != (theirs.observation, theirs.action):
            return number
    return min(len(one.steps), len(other.steps))


def spliced(failure: Trajectory, success: Trajectory, at: int) -> Trajectory | None:
    """The failure up to a turn, and the success from its reply there; None where they do not see the same there,
    or where the success did nothing valid."""
    if at >= min(len(failure.steps), len(success.steps)):
        return None
    if failure.steps[at].observation != success.steps[at].observation or not success.steps[at].valid:
        return None
    ours, theirs = reply_spans(failure), reply_spans(success)
    assert ours is not None and theirs is not None, "what was not all sampled is left aside"
    begun, (start, end) = failure.token_ids[: ours[at][0]], theirs[at]
    unlearned = len(success.token_ids) - end
    steps = [*failure.steps[:at], *success.steps[at:]]
    return replace(
        success,
        attempt=failure.attempt,
        purpose=Purpose.RELABEL,
        steps=tuple(replace(step, learned=number == at) for number, step in enumerate(steps)),
        token_ids=(*begun, *success.token_ids[start:]),
        train_mask=(*[False] * len(begun), *[True] * (end - start), *[False] * unlearned),
        rewards={},
        # They would be of other tokens.
        log_probs=(),
        reshaped=False,
    )
