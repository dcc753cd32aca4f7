"""Episodes of a run as lengths alone, in tokens: of the opening, then of each observation and of the reply to it.

python benchmarks/recorded_lengths.py runs/NAME --episodes test-0020 --out benchmarks/recorded_lengths.json

`recorded_lengths.json` was made so from a run of `recipes/smollm2.yaml` (SmolLM2-135M, `--set method=local_se --set seed=2`
and fewer evaluations, commit 5ef2148): the 200 test tasks of each world, played greedily after the twentieth round. On
average an episode has 8.4 turns, 190 sampled and 281 read tokens after an opening of 113 to 148; 63 % succeed.

A journal holds token ids and which of them the agent drew, so lengths are exact. What stands between two replies counts as
the observation, delimiters included.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedse.experience.journal import Journal
from fedse.rollouts.replaying import reply_spans
from fedse.types import Outcome, Trajectory

SMOLLM2 = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class RecordedEpisode:
    success: bool
    turns: tuple[tuple[int, int], ...]
    """Tokens of each observation and of the reply to it."""

    @property
    def sampled(self) -> int:
        return sum(reply for _, reply in self.turns)

    @property
    def observed(self) -> int:
        return sum(observation for observation, _ in self.turns)


@dataclass(frozen=True)
class RecordedWorld:
    opening: int
    """Tokens that every conversation begins with."""
    episodes: tuple[RecordedEpisode, ...]

    @property
    def successes(self) -> list[RecordedEpisode]:
        return [episode for episode in self.episodes if episode.success]

    @property
    def longest(self) -> int:
        return self.opening + max(episode.observed + episode.sampled for episode in self.episodes)


@lru_cache
def recorded(path: Path) -> dict[str, RecordedWorld]:
    """The worlds of a file, by name. A world is made once for each conversation, so the file is read once."""
    return {name: _world(found) for name, found in json.loads(path.read_text())["worlds"].items()}


def _world(found: Any) -> RecordedWorld:
    return RecordedWorld(found["opening"], tuple(_episode(*numbers) for numbers in found["episodes"]))


def _episode(success: int, *lengths: int) -> RecordedEpisode:
    return RecordedEpisode(bool(success), tuple(zip(lengths[::2], lengths[1::2], strict=True)))


def lengths_of(played: Sequence[Trajectory]) -> RecordedWorld:
    """Of the episodes of one world."""
    replies = [reply_spans(trajectory) or [] for trajectory in played]
    if not all(replies):
        raise ValueError("there are episodes whose replies cannot be told apart")
    opening = _opening(played, replies)
    episodes = [
        RecordedEpisode(trajectory.outcome is Outcome.SUCCESS, _turns(opening, own))
        for trajectory, own in zip(played, replies, strict=True)
    ]
    return RecordedWorld(opening, tuple(episodes))


def _turns(opening: int, replies: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    befores = [opening, *(end for _, end in replies[:-1])]
    return tuple((start - before, end - start) for before, (start, end) in zip(befores, replies, strict=True))


def _opening(played: Sequence[Trajectory], replies: Sequence[Sequence[tuple[int, int]]]) -> int:
    """Of the end tokens before the first reply the last one closes the observation, the one before it the opening."""
    pairs = list(zip(played, replies, strict=True))
    [(closing, _)] = Counter(item.token_ids[end - 1] for item, own in pairs for _, end in own).most_common(1)
    openings = set()
    for item, own in pairs:
        places = [place for place in range(own[0][0]) if item.token_ids[place] == closing]
        openings.add(item.token_ids[: places[-2] + 1])
    if len(openings) != 1:
        raise ValueError("the episodes do not begin alike: they are not of one world")
    return len(openings.pop())


def written(worlds: dict[str, RecordedWorld], made_from: dict[str, str]) -> str:
    """JSON with a line for each episode: whether it succeeded, then observation, reply, observation, reply ..."""

    def numbers(episode: RecordedEpisode) -> list[int]:
        return [int(episode.success), *(length for turn in episode.turns for length in turn)]

    found = {
        name: {"opening": world.opening, "episodes": [numbers(episode) for episode in world.episodes]}
        for name, world in worlds.items()
    }
    whole = json.dumps({"made_from": made_from, "worlds": found}, separators=(",", ":"))
    return whole.replace("],[", "],\n[") + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path)
    options.add_argument("--episodes", default="test-0020", help="a file of the clients' journals")
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    folders = sorted((given.run / "clients").iterdir())
    worlds = {folder.name: lengths_of(list(Journal(folder / "episodes").read(given.episodes))) for folder in folders}
    given.out.write_text(written(worlds, {"run": given.run.name, "episodes": given.episodes}))
    for name, world in worlds.items():
        count, turns = len(world.episodes), sum(len(episode.turns) for episode in world.episodes)
        sampled, observed = (sum(getattr(one, kind) for one in world.episodes) for kind in ("sampled", "observed"))
        per_episode = f"{turns / count:.1f} turns, {sampled / count:.0f} sampled, {observed / count:.0f} read"
        print(f"{name}: opening {world.opening}; {count} episodes, {len(world.successes)} succeed; {per_episode}")


if __name__ == "__main__":
    main()
