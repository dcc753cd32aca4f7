"""A package of somebody else's adds a world by an entry point: the one in `examples/`, installed and run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedse.errors import UnknownName
from fedse.plugins import resolve
from fedse.worlds.check import check

PACKAGE = Path(__file__).parents[1] / "examples" / "fedse_lamps"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH into which the package was installed as pip installs any other."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("third_party")
    # Builds leave files beside what they build.
    source = shutil.copytree(PACKAGE, folder / "source")
    line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*line, "--target", folder / "site", source], check=True, timeout=120)
    return folder / "site"


@pytest.mark.slow
def test_the_world_is_known_by_its_short_name_and_plays_in_an_experiment(installed: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    line = [sys.executable, "-m", "fedse", "run", PACKAGE / "lamps.yaml"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "runs/lamps/rounds/0002/report.json").read_text())
    assert set(report["clients"]) == {"six", "also_six"}
    with pytest.raises(UnknownName, match="unknown world 'lamps'"):  # Here it is not installed.
        resolve("world", "lamps")


def test_the_world_keeps_its_promises(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed)
    from fedse_lamps import Lamps  # type: ignore[import-not-found]

    assert Path(sys.modules["fedse_lamps"].__file__ or "").is_relative_to(installed)
    promises = (
        "description",
        "splits",
        "same task, same episode",
        "save and restore",
        "expert",
        "legal actions",
        "errors",
    )
    assert [finding for finding in check(lambda: Lamps(lamps=6), promises) if not finding.passed] == []
