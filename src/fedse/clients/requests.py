"""What a client asks of the engine while it works, beside episodes (`types.Play`): to be taught."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from fedse.types import ClientUpdate, Lesson, Play


@dataclass(frozen=True)
class Teach:
    """A client asks to learn. The answer is what came of it, or None. The lesson is made when its turn comes, if there is
    still time and experience; until then nothing of the round is remembered."""

    lesson: Callable[[], Lesson | None]


Work = Generator[Play | Teach, Any, ClientUpdate]
"""A client's task under way: what it asks for, what it is answered, and the update in the end."""
