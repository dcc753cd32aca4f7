"""Names for things, actions and missions, in the words of the original or in others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedse.worlds.babyai.goals import Both, Clause, Goal, Ordered, Phrase
from fedse.worlds.babyai.offers import Item, Offer, name
from fedse.worlds.babyai.rooms import Room

VERBS = (
    "turn left", "turn right", "move forward", "go to", "pick up", "drop", "toggle", "go through",
    "open and go through",
)  # fmt: skip
"""The kinds of offers."""
_LOCATIONS = {
    "left": " on your left",
    "right": " on your right",
    "front": " in front of you",
    "behind": " behind you",
    "": "",
}


@dataclass(frozen=True)
class Wording:
    verbs: Mapping[str, str]
    nouns: Mapping[str, str]
    demands: Mapping[str, str]
    """Verbs of missions, with `{}` for the things."""

    def verb(self, offer: Offer) -> str:
        return self.verbs[offer.verb]

    def thing(self, room: Room, thing: int) -> str:
        """A thing as it is named in actions, without a number: "closed red door"."""
        color, state, kind = name(room, thing)
        return f"{state} {color} {self.nouns[kind]}" if state else f"{color} {self.nouns[kind]}"

    def plain(self, room: Room, thing: int) -> str:
        """A thing without its state: "red door"."""
        color, _, kind = name(room, thing)
        return f"{color} {self.nouns[kind]}"

    def item(self, room: Room, item: Item) -> str:
        found = self.thing(room, item.thing)
        return f"{found} {item.number}" if item.is_one_of_many else found

    def action(self, room: Room, offer: Offer) -> str:
        """An offer as the agent writes it."""
        if offer.verb in ("turn left", "turn right", "move forward", "drop", "toggle"):
            return self.verb(offer)
        number = f" {offer.number}" if offer.number else ""
        return f"{self.verb(offer)} {self.thing(room, offer.thing)}{number}"

    def phrase(self, phrase: Phrase, article: bool = True) -> str:
        """Things as a mission names them."""
        found = f"{phrase.color} {self.nouns[phrase.kind]}".strip()
        article_word = ("a " if phrase.several else "the ") if article else ""
        return f"{article_word}{found}{_LOCATIONS[phrase.location]}"

    def mission(self, goal: Goal, with_order: bool) -> str:
        """The whole mission. Without order words, what has to be done first is told no more."""
        if isinstance(goal, Clause):
            named = [goal.phrase] if goal.beside_phrase is None else [goal.phrase, goal.beside_phrase]
            return self.demands[goal.verb].format(*(self.phrase(phrase) for phrase in named))
        if isinstance(goal, Both):
            return " and ".join(self.mission(part, with_order) for part in goal.parts)
        assert isinstance(goal, Ordered)
        first, second = self.mission(goal.first, with_order), self.mission(goal.second, with_order)
        if goal.told_backwards:
            return f"{second} {'after you' if with_order else 'and'} {first}"
        return f"{first}, then {second}" if with_order else f"{first} and {second}"


WORDINGS = {
    "plain": Wording(
        {verb: verb for verb in VERBS},
        {kind: kind for kind in ("ball", "box", "key", "door")} | {"": "object"},
        {"go to": "go to {}", "open": "open {}", "pick up": "pick up {}", "put": "put {} next to {}"},
    ),
    "other": Wording(
        dict(
            zip(
                VERBS,
                (
                    "rotate left", "rotate right", "step ahead", "walk to", "take", "put down", "switch", "enter",
                    "unbar and enter",
                ),
                strict=True,
            )
        ),
        {"ball": "orb", "box": "crate", "key": "card", "door": "gate", "": "item"},
        {"go to": "walk to {}", "open": "unbar {}", "pick up": "take {}", "put": "set {} beside {}"},
    ),
}  # fmt: skip


class OriginalWording(Wording):
    """The original's spelling: `pickup`, the state of a door after its colour, a number after every name."""

    def thing(self, room: Room, thing: int) -> str:
        return " ".join(word for word in name(room, thing) if word)


ORIGINAL = OriginalWording(
    {verb: verb for verb in VERBS} | {"pick up": "pickup", "open and go through": "toggle and go through"},
    WORDINGS["plain"].nouns,
    WORDINGS["plain"].demands,
)
CHECK = "check available actions"
