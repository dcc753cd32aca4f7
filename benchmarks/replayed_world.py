"""A world that says and asks for as many tokens as a recorded episode had, and ends as it ended.

What it says means nothing: an observation begins with the number of tokens that the reply to it has, for `ReplayingPolicy`
to read, and goes on with letters drawn for this task and turn, so that conversations have no more in common than real ones.
Tokens are those of `byte_tokenizer`: one for each letter, and the delimiters of its template.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any, ClassVar

from recorded_lengths import RecordedEpisode, RecordedWorld, recorded

from fedse.errors import BadInput
from fedse.plugins import FilePath, PluginOptions
from fedse.seeds import generator
from fedse.types import Split, Task
from fedse.worlds.world import Turn, World

OPENING, TURN, END = 7, 3, 1
"""Tokens of the template around rules (the agent's fixed answer among them), around an observation, and after a reply."""


def letters(count: int, *name: str | int) -> str:
    """So many, which depend on the name."""
    return "".join(ascii_lowercase[place] for place in generator(*name).integers(0, len(ascii_lowercase), count))


class ReplayedWorld(World):
    """One world of a recording; its tasks are the recorded episodes, in every split."""

    name: ClassVar[str] = "replayed"
    version: ClassVar[int] = 1

    class Options(PluginOptions):
        recording: FilePath
        """A file of `recorded_lengths.py`."""
        of: str
        """A world in it."""

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.recorded: RecordedWorld = recorded(self.options.recording)[self.options.of]
        self._task, self._turn = "", 0

    @property
    def rules(self) -> str:
        return letters(self.recorded.opening - OPENING, self.options.of)

    @property
    def turn_limit(self) -> int:
        return max(len(episode.turns) for episode in self.recorded.episodes)

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{number}") for number in range(len(self.recorded.episodes))]

    def begin(self, task: str) -> str:
        self._task, self._turn = task, 0
        return self._observation()

    def act(self, action: str) -> Turn:
        del action  # Whatever is said, the episode goes on as it was recorded.
        episode = self._episode()
        self._turn += 1
        if self._turn < len(episode.turns):
            return Turn(self._observation())
        return Turn("", done=True, success=episode.success, score=float(episode.success))

    def _episode(self) -> RecordedEpisode:
        split, _, number = self._task.partition("-")
        if split not in ("train", "validation", "test") or not number.isdecimal():
            raise BadInput(f"{self.name}: there is no task '{self._task}'.")
        return self.recorded.episodes[int(number)]

    def _observation(self) -> str:
        tokens, reply = self._episode().turns[self._turn]
        asked = f"{reply} "
        # No replayed reply ends by itself: its end is written before the next observation.
        left = tokens - TURN - (END if self._turn else 0) - len(asked)
        if left < 0:
            raise ValueError(f"an observation of {tokens} tokens cannot say that {reply} are asked for")
        return asked + letters(left, self.options.of, self._task, self._turn)

    @property
    def has_expert(self) -> bool:
        return False

    def trivial(self, draw: float) -> str:
        del draw
        return ""

    def drawing(self) -> str:
        return f"{self._task}, turn {self._turn}"

    def state(self) -> Any:
        return self._task, self._turn

    def set_state(self, state: Any) -> None:
        self._task, self._turn = state
