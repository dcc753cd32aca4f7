"""Success rates with intervals, from counts. Errors are never part of a rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Any

from fedse.privacy.names import known_kind
from fedse.types import Outcome, Split, Trajectory, WorldScore

Z95 = 1.959963984540054


def wilson(successes: float, episodes: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    >>> low, high = wilson(17, 25)
    >>> round(low, 3), round(high, 3)
    (0.484, 0.828)
    """
    if episodes == 0:
        return 0.0, 1.0
    share = successes / episodes
    spread = Z95**2 / episodes
    centre = (share + spread / 2) / (1 + spread)
    half = Z95 / (1 + spread) * sqrt(share * (1 - share) / episodes + spread / (4 * episodes))
    # Rounding must not push a bound past the share itself, at 0 and at 1.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def score(
    world: str, split: Split, trajectories: Sequence[Trajectory], floor: float, ceiling: float | None
) -> WorldScore:
    """Counts of one world's evaluation episodes."""
    played = [trajectory for trajectory in trajectories if trajectory.outcome is not Outcome.ERROR]
    errors: dict[str, int] = {}
    for trajectory in trajectories:
        if trajectory.outcome is Outcome.ERROR:
            kind = known_kind(trajectory.error)
            errors[kind] = errors.get(kind, 0) + 1
    return WorldScore(
        world=world,
        split=split,
        episodes=len(played),
        successes=sum(trajectory.outcome is Outcome.SUCCESS for trajectory in played),
        steps=sum(len(trajectory.steps) for trajectory in played),
        tokens=sum(trajectory.agent_tokens for trajectory in played),
        invalid=sum(trajectory.invalid_actions for trajectory in played),
        errors=errors,
        floor=floor,
        ceiling=ceiling,
    )


def summarise(scores: Iterable[tuple[str, WorldScore]]) -> dict[str, Any]:
    """Rows for each client and world, and the two averages: macro over rows, micro over episodes."""
    rows = [row(client, item) for client, item in scores]
    counted = [entry for entry in rows if entry["episodes"]]
    episodes = sum(entry["episodes"] for entry in counted)
    successes = sum(entry["successes"] for entry in counted)
    return {
        "worlds": rows,
        "macro": sum(entry["success"] for entry in counted) / len(counted) if counted else None,
        "micro": successes / episodes if episodes else None,
        "micro_interval": micro_interval(counted),
        "episodes": episodes,
        "definition": "success as each world defines it; greedy decoding; adapter frozen; 95 % Wilson intervals, with each "
        "task as one trial; macro = mean over rows, micro = all episodes together; episodes that ended in an error are "
        "counted apart",
    }


def micro_interval(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Of the share of all episodes together. Sites of one world play the same tasks, which are not new trials for each.

    >>> one, other = ({"world": world, "episodes": 25, "successes": 17} for world in ("maze", "maze#2"))
    >>> micro_interval([one, other]) == micro_interval([one]) == wilson(17, 25)
    True
    """
    trials: dict[str, int] = {}
    for entry in rows:
        world = kind_of(entry["world"])
        trials[world] = max(trials.get(world, 0), entry["episodes"])
    episodes, successes = (sum(entry[key] for entry in rows) for key in ("episodes", "successes"))
    tasks = sum(trials.values())
    return wilson(successes * tasks / episodes if episodes else 0, tasks)


def kind_of(label: str) -> str:
    """The world behind a label, which has a number where one client has several of a kind. Counts do not say which tasks
    were played: those of one kind are taken for the same, so that an interval is rather too wide than too narrow."""
    return label.partition("#")[0]


def learned_tokens(metrics: Iterable[Mapping[str, float]]) -> int | None:
    """Tokens that went through lessons, once for each epoch; None where no learner has counted any, as with a table."""
    counted = [told["tokens"] for told in metrics if "tokens" in told]
    return int(sum(counted)) if counted else None


def row(client: str, item: WorldScore) -> dict[str, Any]:
    errors: Mapping[str, int] = dict(item.errors)
    return {
        "client": client,
        "world": item.world,
        "split": item.split,
        "episodes": item.episodes,
        "successes": item.successes,
        "success": item.successes / item.episodes if item.episodes else None,
        "interval": wilson(item.successes, item.episodes),
        "steps": item.steps / item.episodes if item.episodes else None,
        "tokens": item.tokens / item.episodes if item.episodes else None,
        "invalid": item.invalid / item.steps if item.steps else None,
        "errors": errors,
        "floor": item.floor,
        "ceiling": item.ceiling,
    }
