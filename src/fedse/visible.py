"""The one way in which text that came from outside (files, worlds, models, other machines) is shown to a person.

A terminal obeys what it is sent: some characters clear the screen, set its title, fill the clipboard (OSC 52) or turn the
direction of writing, so that a line reads other than it is. They are shown here as what they are, and do nothing.
"""

from __future__ import annotations

import re
from typing import Any

_SHORT = 100
"""The path of a plug-in's class fits."""
_OBEYED = re.compile(
    # Control characters but tab and new line; marks that turn or hide text; separators that begin a line unseen; halves of
    # characters, which cannot be printed; and what stands for nothing at all.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The same text with `\\\\x1b` and its like in the place of what a terminal would obey.

    >>> visible("a title: \\x1b]0;pwned\\x07, a turn: \\u202e")
    'a title: \\\\x1b]0;pwned\\\\x07, a turn: \\\\u202e'
    >>> visible("Zürich 東京 \\t ok")
    'Zürich 東京 \\t ok'
    """
    return _OBEYED.sub(lambda found: ascii(found.group())[1:-1], text)


def short(word: Any, length: int = _SHORT) -> str:
    """What somebody wrote, in a line and short enough for a message.

    >>> short("word " * 100)
    'word word word word word word word word word word word word word word word word word word word wo...'
    """
    text = str(word)
    cut = text[: 4 * length].split()
    line = " ".join(cut)
    return line if len(line) <= length and len(text) <= 4 * length else f"{line[: length - 3]}..."
