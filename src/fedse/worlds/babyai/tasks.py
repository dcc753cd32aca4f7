"""Which layout a task of the clean mode means: one of its split that the expert solves in time."""

from __future__ import annotations

from functools import lru_cache

from fedse.errors import BadInput
from fedse.seeds import stream, uniform
from fedse.types import Split
from fedse.worlds.babyai.expert import advise
from fedse.worlds.babyai.goals import CONTINUE, SUCCESS
from fedse.worlds.babyai.levels import generate
from fedse.worlds.babyai.offers import clean_offers, items
from fedse.worlds.babyai.rooms import Layout, Room, look
from fedse.worlds.splits import assigned_split

# Levels of which random play over the offered actions solves at most 30 % of the test tasks, and the expert at least
# half of the layouts in ten turns; `Unlock` is left out too, since minigrid takes long to make it. The table behind the
# choice and the command that prints it are in docs/worlds_babyai.md.
DEFAULT_LEVELS = (
    "GoToImpUnlock", "OpenDoorsOrderN4Debug", "Pickup", "UnblockPickup", "PutNextLocalS6N4", "PutNextS7N4Carrying",
    "UnlockLocalDist", "KeyInBox", "UnlockPickupDist", "BlockedUnlockPickup", "FindObjS7", "SynthSeq",
    "BossLevelNoUnlock",
)  # fmt: skip

_ATTEMPTS = 2_000
_SEEDS = 1 << 31


def turns_needed(layout: Layout, view: int, most: int) -> int | None:
    """How many turns the expert takes; None if it fails or needs more than `most`."""
    room = Room(layout)
    for turn in range(1, most + 1):
        sight = look(room, view)
        offer = advise(room, clean_offers(room, sight, items(room, sight)), any_finish_counts=True).offer
        for action in offer.steps:
            verdict = room.step(action)
            if verdict != CONTINUE:
                return turn if verdict == SUCCESS else None
    return None


@lru_cache(maxsize=2048)
def chosen_layout(level: str, split: Split, pool: int, number: int, view: int, shortest: int, longest: int) -> Layout:
    """Layout `number` of a level and split. Its split follows from the layout itself."""
    key = stream("babyai", level, split, pool, number)
    for attempt in range(_ATTEMPTS):
        layout = generate(level, int(uniform(key, attempt) * _SEEDS))
        if assigned_split(layout.key()) != split:
            continue
        turns = turns_needed(layout, view, longest)
        if turns is not None and turns >= shortest:
            return layout
    raise BadInput(
        f"babyai: no task of level {level} that the expert solves in {shortest} to {longest} turns was found; change "
        "`shortest`, `longest` or `levels`."
    )
