"""`fedse view` and `fedse report` as a user calls them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from page_runs import CONTENT
from typer.testing import CliRunner

from fedse.cli import app
from fedse.cli.console import say
from fedse.experiments.options import Experiment
from fedse.page.server import PageServer


@pytest.mark.slow
def test_view_prints_the_address_and_ends_with_ctrl_c(finished: Path) -> None:
    line = [sys.executable, "-m", "fedse", "view", "--no-browser"]
    process = subprocess.Popen(line, cwd=finished.parents[0], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "there are no runs in runs" in errors
    with subprocess.Popen([*line, str(finished)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as viewing:
        assert viewing.stdout is not None and viewing.stderr is not None
        address = viewing.stdout.readline().removeprefix("The page: ").strip()
        assert address.startswith("http://127.0.0.1:")
        told = json.loads(urlopen(f"{address}api/small/overview", timeout=20).read())
        assert told["done"] == 2
        viewing.send_signal(signal.SIGINT)
        assert viewing.wait(20) == 0 and viewing.stderr.read() == ""


def test_without_names_it_shows_what_can_be_read(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "runs/whole", ignore=shutil.ignore_patterns("clients"))
    (tmp_path / "runs/damaged").mkdir()
    (tmp_path / "runs/damaged/manifest.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PageServer, "serve_forever", lambda server: say(sorted(server.answers.runs)))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    done = CliRunner().invoke(app, ["view"])
    assert done.exit_code == 0 and "['whole']" in done.output, done.output
    assert "Left out: runs/damaged/manifest.json is damaged" in done.output
    assert f"The page: {opened[0]}" in done.output


def test_a_site_sees_its_own(finished: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    content = {**CONTENT, "clients": {name: {"worlds": ["maze"]} for name in ("east", "west")}}
    (site / "experiment.yaml").write_text(Experiment(**content).to_yaml())
    (site / "site.yaml").write_text(
        "name: east\nhub: 127.0.0.1:9092\ninsecure: true\nexperiment: experiment.yaml\nfolder: data\n"
    )
    early = CliRunner().invoke(app, ["report", str(site), "-o", str(tmp_path / "report.html")])
    assert early.exit_code == 2 and "has no episodes yet" in early.output
    shutil.copytree(finished / "clients/east", site / "data/small/clients/east")
    done = CliRunner().invoke(app, ["report", str(site), "-o", str(tmp_path / "report.html"), "--trajectories", "5"])
    assert done.exit_code == 0 and "of 72 trajectories" in done.output, done.output
    assert '"name":"small at east","kind":"site"' in (tmp_path / "report.html").read_text()
