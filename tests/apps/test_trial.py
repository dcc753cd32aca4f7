"""The commands of docs/deployment.md, as they stand there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deployment import free_port, wait_for

import fedse
from fedse.apps.fence import find_nginx

pytest.importorskip("flwr")
PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
BLOCKS = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL))


def test_the_page_keeps_its_promise_of_three_actions_on_each_side() -> None:
    lines = BLOCKS["trial.sh"].splitlines()
    assert [line.count("fedse hub ") for line in lines] == [0, 1, 0, 0, 1, 0]
    assert [line.count("fedse site ") for line in lines] == [0, 0, 1, 1, 0, 0]
    page = PAGE.read_text()
    assert "apt-get install nginx-light" in page and "/fedse[model,flower]" in page


def script() -> str:
    """The page's lines with free ports; what is installed already is not installed again."""
    direct, fenced = free_port(), find_nginx() is not None
    public = free_port() if fenced else direct
    install, init, *rest = BLOCKS["trial.sh"].replace("8443", str(public)).splitlines()
    assert install.startswith("pip install") and init.startswith("fedse hub init")
    return "\n".join([f"{init} --port {direct}{'' if fenced else ' --no-fence'}", *rest]) + "\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_reach_the_adapter_of_the_local_engine(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "fedse").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedse "$@"\n')
    (tools / "fedse").chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    # Flower starts a process at every site for each lesson and each evaluation; a second round and a test say nothing new.
    short = BLOCKS["experiment.yaml"].replace("test_tasks: 5", "test_tasks: 0").replace("rounds: 2", "rounds: 1")
    (tmp_path / "experiment.yaml").write_text(short)
    lines = "set -e\n" + script()
    process = subprocess.Popen(
        ["bash", "-c", lines + "wait"],
        cwd=tmp_path,
        env=environment,
        stdout=(tmp_path / "said").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait_for(lambda: "Adapter: " in (tmp_path / "said").read_text(), 300, "the run")
        local = fedse.run(fedse.load_experiment(tmp_path / "experiment.yaml"), tmp_path / "local")
        assert f"Adapter: {local.adapter.digest()}" in (tmp_path / "said").read_text()
        shown = "trajectories of this run are on the machines of its sites"
        wait_for(lambda: shown in (tmp_path / "said").read_text(), 60, "the table")
        line = ["fedse", "eval", "runs/three", "--split", "validation"]
        refused = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert refused.returncode == 2 and "on the machines of its sites" in refused.stderr
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
