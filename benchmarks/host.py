"""What the host does while episodes are played, in seconds for 1,000 turns: everything but the model.

The five worlds of recipes/smollm2.yaml are played by a policy that says at once what an expert said somewhere else, so the
time is that of worlds, text, the player and what is written afterwards. It is CPU time of this process, which a busy machine
changes little; what worker processes do is not in it, talking to them is. Each repetition plays half of the tasks again and
half for the first time, as rounds do, and the first is left out.

python benchmarks/host.py --episodes 100 --processes 0 2
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedse.experience.buffer import Buffer
from fedse.experience.journal import Journal
from fedse.experiments.options import load_experiment
from fedse.models.nano import Nano
from fedse.plugins import build
from fedse.protocols import Chat, Reply, Usage
from fedse.rollouts.player import Player
from fedse.seeds import generator
from fedse.starts.demonstrations import Demonstrations
from fedse.stopwatch import Stopwatch, during, running
from fedse.types import Episode, Purpose, Sampling, Task, Trajectory

RECIPE = Path(__file__).parents[1] / "recipes/smollm2.yaml"
ROUND = 1


class AtOnce:
    """Answers every conversation at once with the next of some replies; which one depends on the conversation alone."""

    def __init__(self, slots: int, replies: Sequence[tuple[int, ...]]) -> None:
        self.slots = slots
        self.usage = Usage()
        self._replies = replies
        self._next: dict[int, int] = {}
        self._waiting: list[int] = []
        self._free = list(range(slots))

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        del opening
        slot = self._free.pop()
        self._next[slot] = sampling.key
        return slot

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        del ids
        self._waiting.append(slot)

    def ready(self) -> list[Reply]:
        waiting, self._waiting = self._waiting, []
        found = []
        for slot in waiting:
            self._next[slot] += 1
            found.append(Reply(slot, self._replies[self._next[slot] % len(self._replies)], ended=True))
        return found

    def close(self, slot: int) -> None:
        self._free.append(slot)


def planned(chat: Chat, count: int, repeats: int) -> tuple[list[list[Episode]], list[tuple[int, ...]]]:
    """Episodes of all worlds for each repetition, and replies that suit some of their turns."""
    episodes: list[list[Episode]] = [[] for _ in range(repeats)]
    replies = []
    for name, client in load_experiment(RECIPE).clients.items():
        (part,) = client.worlds
        make_world = partial(build, "world", part)
        world = make_world()
        shown = Demonstrations(count // 2).trajectories(name, name, world, chat, 1)
        replies += [tuple(chat.reply(step.reply)) for item in shown for step in item.steps]
        again, *others = batched(world.tasks("train"), count // 2)
        for repeat in range(repeats):
            episodes[repeat] += [
                Episode(name, name, make_world, task, Purpose.EXPLORE, ROUND, 0, Sampling(number * 7919 + repeat, 1.0))
                for number, task in enumerate([*again, *others[repeat % len(others)]])
            ]
    order = generator("host").permutation(len(replies))
    return episodes, [replies[place] for place in order]


def written(folder: Path, chat: Chat, played: Sequence[Trajectory]) -> None:
    """As a client does at the end of a round; here everything is remembered."""
    for name in sorted({item.client for item in played}):
        own = [item for item in played if item.client == name]
        buffer = Buffer(folder / name / "buffer.sqlite", name, chat.fingerprint)
        with during("disk"):
            buffer.remember(ROUND, own, own)
            Journal(folder / name).write("0001", own)
        with during("reading"):
            buffer.read(ROUND)
        buffer.close()


def batched(tasks: Sequence[Task], size: int) -> list[Sequence[Task]]:
    return [tasks[first : first + size] for first in range(0, len(tasks), size)]


def measured(
    chat: Chat, plans: Sequence[Sequence[Episode]], replies: Any, slots: int, processes: int
) -> dict[str, Any]:
    player = Player(AtOnce(slots, replies), chat, 4096, processes=processes)
    found: list[dict[str, float]] = []
    said = hashlib.sha256()
    for episodes in plans:
        watch = Stopwatch(clock=time.process_time)
        with running(watch), tempfile.TemporaryDirectory() as folder:
            with during("player"):
                played = player.play(episodes, "adapter")
            written(Path(folder), chat, played)
        turns = sum(len(item.steps) for item in played)
        found.append({name: seconds * 1000 / turns for name, seconds in watch.cut().items()})
        said.update(repr(played).encode())
    player._worlds.close()
    spans = {name: statistics.median(one[name] for one in found[1:]) for name in sorted(found[0])}
    return {
        "seconds_for_1000_turns": {name: round(value, 4) for name, value in spans.items()},
        "all": round(sum(spans.values()), 4),
        "trajectories": said.hexdigest()[:16],
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--episodes", type=int, default=100, help="of each world")
    options.add_argument("--slots", type=int, default=256)
    options.add_argument("--processes", type=int, nargs="+", default=[0, 2])
    options.add_argument("--repeats", type=int, default=3)
    given = options.parse_args()
    found = {}
    for processes in given.processes:
        # A new one each time: it remembers texts that it has seen.
        chat = Nano(device="cpu", threads=1).chat
        plans, replies = planned(chat, given.episodes, given.repeats + 1)
        found[f"{processes} processes"] = measured(chat, plans, replies, given.slots, processes)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(json.dumps({"machine": machine, **found}, indent=1))


if __name__ == "__main__":
    main()
