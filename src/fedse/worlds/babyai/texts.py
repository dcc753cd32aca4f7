"""Everything the BabyAI world says, and its picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedse.worlds.babyai.goals import NOTHING
from fedse.worlds.babyai.offers import Item, barrier
from fedse.worlds.babyai.rooms import CLOSED, EMPTY, MARGIN, OPEN, WALL, Room, Sight
from fedse.worlds.babyai.words import CHECK, Wording
from fedse.worlds.reply_form import RulesLength, asked_for, asked_for_briefly

_COLORS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "purple": 35, "grey": 37}
_SIGNS = {"ball": "● ", "box": "■ ", "key": "⚷ "}
_DOORS = ("▯ ", "▮ ", "▮x")
_AGENT = ("▶ ", "▼ ", "◀ ", "▲ ")


@dataclass(frozen=True)
class Narrator:
    """The texts for one choice of options."""

    original: bool
    wording: Wording
    rules_length: RulesLength
    view_length: Literal["full", "brief"]
    turn_limit: int

    # What is seen

    def view(self, room: Room, sight: Sight, seen: Sequence[Item], actions: Sequence[str]) -> str:
        if self.original:
            return self._original_view(room, sight, seen)
        wall = next((ahead for ahead, right, _, content in sight if right == 0 and content == WALL), 0)
        if self.view_length == "brief":
            found = [f"{self.wording.item(room, item)} {_brief_position(item)}" for item in seen]
            found += [f"wall {wall} ahead"] if wall else []
            held = f"\nhold: {self.wording.plain(room, room.held)}" if room.held != NOTHING else ""
            return f"see: {'; '.join(found) or 'nothing'}{held}"
        told = [f"a {self.wording.item(room, item)} {_position(item)}" for item in seen]
        listed = f"You see {_and(told)}." if told else "You see no things from here."
        facing = f" There is a wall {_steps(wall)} ahead of you." if wall else ""
        held = f"the {self.wording.plain(room, room.held)}" if room.held != NOTHING else "nothing"
        return f"{listed}{facing} You carry {held}.\nPossible actions: {', '.join(actions)}."

    def _original_view(self, room: Room, sight: Sight, seen: Sequence[Item]) -> str:
        if seen or any(content == WALL for _, _, _, content in sight):
            told = "".join(
                f"There is a {self.wording.thing(room, item.thing)} {item.number} {_original_position(item)}.  "
                for item in seen
            )
            listed = f"In front of you in this room, you can see several objects: {told}"
        else:
            listed = "You cannot see any objects within sight."
        kind, distance = barrier(room, sight)
        facing = f"You are facing a {kind} {distance} steps away. " if kind else ""
        carried = f"a {self.wording.plain(room, room.held)}" if room.held != NOTHING else ""
        hands = f"You are carrying {carried}." if carried else "You are not carrying anything."
        return f"{listed}The room has walls around you. {facing}{hands}"

    def offered(self, actions: Sequence[str]) -> str:
        """The line that ends every observation of the original."""
        return "\nAvailable actions: [" + ", ".join(f'"{action}"' for action in actions) + "]"

    def start(self, mission: str, view: str) -> str:
        if self.original:
            return f"Your goal: {mission}\n{view}"
        return f"goal: {mission}\n{view}" if self.view_length == "brief" else f"Your goal: {mission}.\n{view}"

    # How an action ended

    @property
    def success(self) -> str:
        if self.original:
            return "\n The task is completed."
        return "Done." if self.view_length == "brief" else "Well done, the goal is reached."

    @property
    def failure(self) -> str:
        if self.view_length == "brief":
            return "Wrong one. Failed."
        return "That was not the one the goal asks for. The task has failed."

    @property
    def unchanged(self) -> str:
        return "Nothing has changed."

    def refusal(self, room: Room, action: str, seen: Sequence[Item]) -> str:
        """Why something cannot be done now."""
        verbs = self.wording.verbs
        if action == verbs["move forward"]:
            return "Something is in the way."
        if action == verbs["drop"]:
            return "You carry nothing." if room.held == NOTHING else "There is no room for it in front of you."
        if action == verbs["toggle"]:
            ahead = room.cells[room.ahead()]
            locked = room.is_door(ahead)
            if locked:
                return f"It is locked, and you do not carry its {self.wording.nouns['key']}."
            return f"There is nothing to {verbs['toggle']} right ahead."
        for kind in ("open and go through", "go through", "pick up", "go to"):
            if action.startswith(f"{verbs[kind]} "):
                return self._refused(room, kind, action[len(verbs[kind]) + 1 :], seen)
        if self.original:
            return "The action is not recognized. Please check valid actions."
        return "Not an action." if self.view_length == "brief" else "That is not an action."

    def _refused(self, room: Room, kind: str, named: str, seen: Sequence[Item]) -> str:
        meant = [item for item in seen if named in (self.wording.item(room, item), self.wording.plain(room, item.thing),
                 f"{self.wording.thing(room, item.thing)} {item.number}")]  # fmt: skip
        if not meant:
            return f"You see no {named}." if named else "You see no such thing."
        thing, place = meant[0].thing, meant[0].place
        if kind == "go to" and place == room.ahead():
            return f"You already stand before the {named}."
        if kind == "pick up" and not room.is_door(thing) and room.held != NOTHING:
            return "Your hands are full."
        if kind in ("go through", "open and go through") and room.is_door(thing):
            if room.doors[thing] == CLOSED and kind == "go through":
                return f"The {named} is closed."
            if room.doors[thing] == OPEN and kind == "open and go through":
                return f"The {named} is open already."
            if room.doors[thing] not in (OPEN, CLOSED) and not room.has_key_for(thing):
                return f"The {named} is locked, and you do not carry its {self.wording.nouns['key']}."
        elif kind != "go to" and (kind != "pick up" or room.is_door(thing)):
            return f"That cannot be done with the {named}."
        return f"You see no free way to the {named}."

    # The rules

    def rules(self) -> str:
        return self._full_rules() if self.rules_length == "full" else self._brief_rules()

    def _brief_rules(self) -> str:
        verbs, nouns = self.wording.verbs, self.wording.nouns
        example = f"red {nouns['ball']} 1" if self.original else f"red {nouns['ball']}"
        check = f", {CHECK}" if self.original else ""
        return (
            f"Do what the goal says in rooms with {_many(nouns)}. You see only what is before you.\n"
            f"Actions: {verbs['turn left']}, {verbs['turn right']}, {verbs['move forward']}, {verbs['go to']} X, "
            f"{verbs['pick up']} X, {verbs['drop']}, {verbs['toggle']}, {verbs['go through']} X (open {nouns['door']}), "
            f"{verbs['open and go through']} X (closed {nouns['door']}){check}. X is what you see, like {example}. "
            f"A locked {nouns['door']} needs the {nouns['key']} of its colour in your hands.\n"
            f"Answer with one action per turn, in {asked_for_briefly(self.rules_length, 'action')}"
        )

    def _full_rules(self) -> str:
        verbs, nouns = self.wording.verbs, self.wording.nouns
        door, key, box = nouns["door"], nouns["key"], nouns["box"]
        numbered = (
            "every name is followed by a number, 1 for the nearest thing of that name"
            if self.original
            else "where several have the same name, a number follows it, 1 for the nearest"
        )
        look_in = "" if self.original else f", or look into a {box} there (which is then gone)"
        shown = self.view_length == "full"
        listed = ", and every turn ends with the actions that are possible now" if shown else ""
        drop = "" if self.original else f"- {verbs['drop']}: lay down what you carry, on the free place ahead of you\n"
        return (
            "You are an expert at finding your way and getting things done. You are in a house of one or more rooms with "
            f"{_many(nouns)}, and you are given a goal. Every turn you are told what you see: only what is in "
            f"front of you and to the sides, a few steps far, and not through walls or closed {door}s. "
            'Sides such as "on your left" in a goal are meant as you stand at the start.\n'
            f"You can carry one thing. Things are called by their names; {numbered}.\n\n"
            "The actions are:\n"
            f"- {verbs['turn left']}, {verbs['turn right']}, {verbs['move forward']}\n"
            f"- {verbs['go to']} <thing>: walk there and stop before it, facing it\n"
            f"- {verbs['pick up']} <thing>: walk there and take it; your hands must be empty\n"
            f"{drop}"
            f"- {verbs['toggle']}: open or close a {door} right ahead of you{look_in}\n"
            f"- {verbs['go through']} <{door}>: walk into an open {door}\n"
            f"- {verbs['open and go through']} <{door}>: the same for a closed {door}, or for a locked one when you carry "
            f"the {key} of its colour\n"
            f"Only things in view can be named{listed}. Anything else is refused and costs a turn. "
            f"You have {self.turn_limit} turns.\n\n"
            "Give exactly one action per turn, in this form:\n"
            + asked_for("what you conclude from what you see", "one of the actions")
        )

    # The picture

    def drawing(self, room: Room, sight: Sight, mission: str) -> str:
        """The rooms from above, with dots where the agent can see the floor."""
        stride = room.layout.stride
        lit = {place for _, _, place, _ in sight}
        lines = []
        for row in range(MARGIN, len(room.cells) // stride - MARGIN):
            places = range(row * stride + MARGIN, row * stride + stride - MARGIN)
            lines.append("".join(self._sign(room, place, place in lit) for place in places))
        held = self.wording.plain(room, room.held) if room.held != NOTHING else "nothing"
        return "\n".join([*lines, "", f"Goal: {mission}", f"You carry: {held}"])

    def _sign(self, room: Room, place: int, lit: bool) -> str:
        content = room.cells[place]
        if place == room.at:
            return f"\x1b[1;33m{_AGENT[room.facing]}\x1b[0m"
        if content == WALL:
            return "\x1b[90m██\x1b[0m"
        if content == EMPTY:
            return "\x1b[90m· \x1b[0m" if lit else "  "
        thing = room.layout.things[content]
        sign = _DOORS[room.doors[content]] if thing.kind == "door" else _SIGNS[thing.kind]
        return f"\x1b[{_COLORS[thing.color]}m{sign}\x1b[0m"


def _many(nouns: Mapping[str, str]) -> str:
    box = "boxes" if nouns["box"] == "box" else f"{nouns['box']}s"
    return f"{nouns['ball']}s, {box}, {nouns['key']}s and {nouns['door']}s"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _position(item: Item) -> str:
    side = f"{abs(item.right)} to your {'left' if item.right < 0 else 'right'}"
    if item.right == 0:
        return f"{_steps(item.ahead)} straight ahead"
    if item.ahead == 0:
        return f"{_steps(abs(item.right))} to your {'left' if item.right < 0 else 'right'}"
    return f"{_steps(item.ahead)} ahead and {side}"


def _brief_position(item: Item) -> str:
    parts = [f"{item.ahead} ahead"] if item.ahead else []
    if item.right:
        parts.append(f"{abs(item.right)} {'left' if item.right < 0 else 'right'}")
    return " ".join(parts)


def _original_position(item: Item) -> str:
    if item.right == 0:
        return f"right in front of you {item.ahead} steps away"
    side = "right" if item.right > 0 else "left"
    return f"{item.ahead} steps in front of you and {abs(item.right)} steps to your {side}"
