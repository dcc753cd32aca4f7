"""The run that the tests of the page look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_runs import make_run

from fedse.page.shown import Shown
from fedse.runs.reading import RunView


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nobody writes into it."""
    return make_run(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def shown(finished: Path) -> Shown:
    return Shown.of(RunView.existing(finished), own_worlds=True)
