"""The double-T maze in few words and turns: where a test is not about texts, long ones are most of what its runs take."""

from __future__ import annotations

from typing import Any

SHORT_MAZE: dict[str, Any] = {
    "name": "maze",
    "mode": "original",
    "rules": "brief",
    "observation_length": "brief",
    "turn_limit": 13,
}
