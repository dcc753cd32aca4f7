"""Is what nano gains in a run learned, or is there a cheaper explanation?

    python scripts/probe_nano.py opening recipes/nano.yaml --say "Thought: Let me look closely."

plays the untrained model with every reply made to begin with the same words, on the tasks of the experiment's test.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fedse.experiment import Parts, build_parts, load_experiment
from fedse.protocols import Policy, Reply, Sampling
from fedse.rollouts.player import Episode, Player
from fedse.seeds import generator
from fedse.types import Adapter, Outcome, Purpose, Split


class ForcedOpening:
    """A policy whose replies all begin with the same ids: the one thing that can be had without any training."""

    def __init__(self, policy: Policy, ids: Sequence[int]) -> None:
        self.policy = policy
        self.slots = policy.slots
        self.usage = policy.usage
        self._ids = tuple(ids)

    def load(self, adapter: Adapter) -> None:
        self.policy.load(adapter)

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        return self.policy.open(opening, sampling)

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        self.policy.extend(slot, [*ids, *self._ids])

    def ready(self) -> list[Reply]:
        return [Reply(reply.slot, (*self._ids, *reply.ids), reply.ended) for reply in self.policy.ready()]

    def close(self, slot: int) -> None:
        self.policy.close(slot)


def successes(parts: Parts, policy: Policy, split: Split, tasks: int) -> dict[str, list[bool]]:
    """Greedy success on the held-out tasks that an evaluation takes, by world."""
    episodes = []
    for client, makers in parts.worlds.items():
        for label, make_world in makers.items():
            world = make_world()
            listed = world.tasks(split)
            order = generator("held out", world.name, split).permutation(len(listed))[:tasks]
            episodes += [
                Episode(client, label, make_world, listed[index], Purpose.EVALUATE, 0, 0, Sampling(0, 0.0))
                for index in order
            ]
    played = Player(policy, parts.model.chat, parts.model.context).play(episodes, "probe")
    found: dict[str, list[bool]] = {}
    for trajectory in played:
        found.setdefault(trajectory.world, []).append(trajectory.outcome is Outcome.SUCCESS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    probes = parser.add_subparsers(dest="probe", required=True)
    opening = probes.add_parser("opening")
    opening.add_argument("experiment")
    opening.add_argument("--say", required=True)
    opening.add_argument("--tasks", type=int, default=200)
    opening.add_argument("--split", choices=["validation", "test"], default="test")
    given = parser.parse_args()
    experiment = load_experiment(given.experiment)
    parts = build_parts(experiment)
    parts.policy.load(parts.model.initial_adapter(experiment.seed))
    said = [] if not given.say else parts.model.chat.reply(given.say)[:-1]
    found = successes(parts, ForcedOpening(parts.policy, said), given.split, given.tasks)
    shares = {world: 100 * sum(won) / len(won) for world, won in sorted(found.items())}
    print("  ".join(f"{world} {share:.1f}" for world, share in shares.items()))
    print(f"macro {sum(shares.values()) / len(shares):.1f}")


if __name__ == "__main__":
    main()
