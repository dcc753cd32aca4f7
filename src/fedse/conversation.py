"""What every conversation holds, whatever world and model it is with."""

from __future__ import annotations

import re

ACCEPTANCE = "OK."
"""The agent's fixed answer to the rules. It stands in every conversation and is never learned from."""

ACTION_MARK = re.compile(r"^[ \t]*action[ \t]*:", re.IGNORECASE | re.MULTILINE)
"""What opens the line of a reply that holds its action."""
