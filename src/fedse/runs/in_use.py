"""Whether a process holds a run's folder, found out without holding it."""

from __future__ import annotations

from pathlib import Path

from fedse.runs.folder import LOCK

_LOCKS = Path("/proc/locks")


def in_use(run: Path) -> bool | None:
    """None where the machine does not tell. Trying the lock would be in the way of a run that begins at that moment."""
    try:
        number = (run / LOCK).stat().st_ino
        lines = _LOCKS.read_text().splitlines()
    except FileNotFoundError:
        return None if not _LOCKS.exists() else False
    except OSError:
        return None
    # 1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234567 0 EOF
    held = [line.split() for line in lines if " FLOCK " in line and "->" not in line]
    return any(words[5].rpartition(":")[2] == str(number) for words in held if len(words) > 5)
