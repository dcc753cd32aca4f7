"""`fedse serve` as its users have it: another process, and the same success as `fedse eval` through it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.experience.journal import Journal
from fedse.experiments.components import make_players
from fedse.experiments.options import Experiment
from fedse.experiments.stored_adapter import stored_adapter
from fedse.runs.reading import RunView
from fedse.serving.server import AgentServer
from fedse.serving.worker import Worker
from short_maze import SHORT_MAZE

openai = pytest.importorskip("openai")

AFTER = Path(__file__).parents[1] / "models" / "nano_after"
BRIEF = {"rules": "bare", "observation_length": "brief"}
CLIENTS = {
    "maze": {"worlds": [{"name": "maze", **BRIEF, "shortest": 4, "longest": 6, "turn_limit": 6}]},
    "textcraft": {"worlds": [{"name": "textcraft", **BRIEF, "shallowest": 2, "deepest": 2, "turn_limit": 4}]},
}


def experiment(**content: Any) -> Experiment:
    usual = {"rounds": 0, "start": "none", "clients": CLIENTS, "evaluation": {"tasks": 4, "test_tasks": 0}}
    return Experiment.model_validate({**usual, **content})


def episodes(run: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    return {
        (client, item.task): (item.outcome, [step.reply for step in item.steps])
        for client in CLIENTS
        for item in Journal(run / f"clients/{client}/episodes").read("validation-0000")
    }


@pytest.mark.slow
def test_an_agent_plays_through_the_server_as_it_does_in_its_run(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    played = experiment(
        name="played",
        model={"name": "nano", "device": "cpu", "threads": 1},
        start_adapter=str(AFTER),
        policy={"slots": 8, "reply_tokens": 40},
    )
    run = fedse.run(played, tmp_path).folder
    model, policy = make_players(played.model, played.policy)
    policy.load(stored_adapter(RunView.existing(run), 0, ""))
    worker = Worker(policy, model.chat, model.context)
    server = AgentServer(worker, "played@0")
    server.listen()
    over = threading.Event()
    thread = threading.Thread(target=worker.work, args=(over.is_set,))
    thread.start()
    try:
        through = experiment(
            name="through",
            model="served",
            policy={"name": "api", "url": server.url, "model": "played@0", "slots": 5, "reply_tokens": 40},
            learner="none",
        )
        result = fedse.run(through, tmp_path)
    finally:
        over.set()
        server.close()
        thread.join(10)
    assert episodes(result.folder) == episodes(run), "reply by reply"
    assert len({outcome for outcome, _ in episodes(run).values()}) == 2, "some are solved and some are not"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without torch."""
    made = experiment(
        name="table",
        rounds=2,
        model={"name": "table", "rows": 512},
        policy="table",
        learner="table",
        start={"tasks": 3},
        clients={name: {"worlds": [SHORT_MAZE]} for name in ("east", "west")},
    )
    return fedse.run(made, tmp_path_factory.mktemp("table")).folder


@pytest.mark.slow
def test_the_command_answers_until_it_is_interrupted(table: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in table.rglob("*")}
    command = [
        sys.executable,
        "-m",
        "fedse",
        "serve",
        str(table),
        "--port",
        "0",
        "--round",
        "1",
        "--key-from",
        "MY_KEY",
    ]
    environment = {**os.environ, "MY_KEY": "secret-7", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout
        lines = [process.stdout.readline(), process.stdout.readline()]
        assert lines[1].startswith("Serving table@1 at http://127.0.0.1:"), lines
        client = openai.OpenAI(base_url=lines[1].split()[3], api_key="secret-7", max_retries=0)
        messages = [{"role": "system", "content": "r"}, {"role": "user", "content": "seen"}]
        said = client.chat.completions.create(model="table@1", messages=messages, temperature=0)
        assert "Action: move" in (said.choices[0].message.content or "")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert "secret-7" not in "".join(lines) + process.stdout.read()
    assert {path: path.stat().st_mtime_ns for path in table.rglob("*")} == before, "nothing is written"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--round", "9"], "complete rounds are 0 to 2"),
        (["--client", "eats"], "did you mean 'east'?"),
        (["--set", "rounds=3"], "only keys of model and policy"),
        (["--key-from", "my-key-itself"], "never the key itself"),
        (["--key-from", "NOT_SET_ANYWHERE"], "holds no key"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(table: Path, options: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["serve", str(table), *options])
    assert done.exit_code == 2 and words in done.output and "my-key-itself" not in done.output


def test_a_port_that_is_taken_is_said(table: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["serve", str(table), "--port", str(port)])
    assert done.exit_code == 2 and f"--port {port}: cannot listen there" in done.output
