"""What is remembered is closed to other accounts of a machine, and what is temporary goes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deployment import wait_for

import fedse
from fedse.experiments.options import Experiment

SITE = """
import sys
import fedse.apps.site
from fedse.cli import app

# A site that has found its hub, and gets no message.
fedse.apps.site.wait_for_hub = lambda *_: None
fedse.apps.site._supervise = lambda *_: None
app(["site", "run", sys.argv[1]])
"""
EXPERIMENT = """
name: small
model: {name: table, rows: 64}
policy: table
learner: table
clients: {east: {worlds: [{name: maze, mode: original}]}}
"""


@pytest.fixture
def open_umask() -> Iterator[None]:
    """That of most accounts: everybody may read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[Path]:
    return [path for path in [folder, *folder.rglob("*")] if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def test_the_clients_of_a_run_are_closed_to_others(
    table_experiment: Callable[..., Experiment], tmp_path: Path, open_umask: None
) -> None:
    folder = fedse.run(table_experiment(rounds=1), tmp_path).folder
    assert stat.S_IMODE((folder / "clients").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "rounds").stat().st_mode) & 0o044


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    pytest.importorskip("flwr")
    from fedse.apps.hub_folder import HubFolder, HubOptions

    HubFolder.create(tmp_path / "hub", HubOptions(), ["east"])
    kit = tmp_path / "hub/sites/east"
    (kit / "experiment.yaml").write_text(EXPERIMENT)
    return kit


def test_a_hub_and_its_kits_are_closed_to_others(tmp_path: Path, open_umask: None) -> None:
    pytest.importorskip("flwr")
    from typer.testing import CliRunner

    from fedse.cli import app

    assert CliRunner().invoke(app, ["hub", "init", str(tmp_path / "hub"), "--site", "east"]).exit_code == 0
    # The bundle is the same for everybody, and lies in a closed folder.
    assert [path for path in open_to_others(tmp_path / "hub") if "bundle" not in path.parts] == []
    (tmp_path / "other").mkdir()
    assert open_to_others(tmp_path / "other") != [], "the command must not change what follows it"


@pytest.mark.slow
def test_a_site_is_closed_to_others_and_leaves_nothing_in_the_temporary_folder(
    kit: Path, tmp_path: Path, open_umask: None
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (kit / "data").mkdir(mode=0o755)  # As an earlier version has made it.
    note = kit / "data/socket-folder"
    environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", SITE, str(kit / "site.yaml")], env=environment)
        wait_for(lambda: note.exists() and (Path(note.read_text()) / "worker").exists(), 60, "the site")
        return process

    killed = start()
    assert open_to_others(kit / "data") == []
    killed.kill()
    killed.wait()
    (left,) = temporary.glob("fedse-*")
    ended = start()
    wait_for(lambda: not left.exists(), 60, "the site to tidy up")
    wait_for(lambda: list(temporary.glob("fedse-*/worker")), 60, "the site again")
    ended.send_signal(signal.SIGTERM)
    assert ended.wait(timeout=30) == 143
    assert list(temporary.glob("fedse-*")) == [] and not note.exists()
