"""Where models that were pulled are kept."""

from __future__ import annotations

import os
from pathlib import Path


def models_folder() -> Path:
    """`models` in FEDSE_CACHE, or in `fedse` in the user's cache folder."""
    if chosen := os.environ.get("FEDSE_CACHE"):
        return Path(chosen).expanduser().absolute() / "models"
    standard = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # A relative XDG_CACHE_HOME is to be ignored, says the standard: it would move with the working folder.
    parent = standard if standard.is_absolute() else Path.home() / ".cache"
    return parent / "fedse" / "models"
