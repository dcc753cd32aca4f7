"""The form of a reply as the rules of a world ask for it: a thought and an action, or an action alone."""

from __future__ import annotations

from typing import Literal

RulesLength = Literal["full", "brief", "bare"]
"""Whole pages, a few lines, or the same few lines that ask for an action without a thought."""


def asked_for(thought: str, action: str) -> str:
    return f"Thought: <{thought}>\nAction: <{action}>"


def asked_for_briefly(rules: RulesLength, action: str) -> str:
    """How the short rules of a world end."""
    return f"one line:\nAction: <{action}>" if rules == "bare" else f"two lines:\n{asked_for('short reason', action)}"
