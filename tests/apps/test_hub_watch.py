"""A hub notices that what it has started is gone, says so, and goes on or gives up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deployment import free_port, wait_for

pytest.importorskip("flwr")

from fedse.apps import submitted_run
from fedse.apps.flower_server import (
    GIVEN_UP_AFTER,
    LOOK,
    MENTIONED_AFTER,
    HubFailed,
    ServerLost,
    Silence,
    flower_server,
)
from fedse.apps.hub import open_hub, run_hub
from fedse.apps.hub_folder import HubFolder
from fedse.apps.hub_options import HubOptions
from fedse.apps.sign_of_life import held, hold, sign_of
from fedse.apps.submitted_run import MOST_LOSSES, Follower, RunLost, SubmittedRun
from fedse.errors import BadInput, RunConflict
from fedse.events import RoundFinished
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder

LIVES = """
import json, os, sys, time
from pathlib import Path
from fedse.apps.sign_of_life import hold, sign_of
outcome = Path(sys.argv[1])
sign = hold(sign_of(outcome))
# Whoever sees the file reads it.
part = outcome.with_suffix(".part")
part.write_text(json.dumps({"pid": os.getpid()}))
part.rename(outcome)
time.sleep(60)
"""


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts what stands for the process of a run."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        (tmp_path / "flower").mkdir(exist_ok=True)
        started.append(subprocess.Popen([sys.executable, "-c", LIVES, str(tmp_path / "flower/outcome.json")]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_zombie_is_not_alive(living: Callable[[], subprocess.Popen[bytes]], tmp_path: Path) -> None:
    process, sign = living(), sign_of(tmp_path / "flower/outcome.json")
    wait_for(lambda: held(sign), 60, "the process")
    process.send_signal(signal.SIGKILL)
    wait_for(lambda: not held(sign), 10, "its end")
    # Nobody has waited for it, so it is in the table of processes still.
    assert Path(f"/proc/{process.pid}").exists() or sys.platform != "linux"


def test_a_hub_is_opened_once(tmp_path: Path) -> None:
    hub = HubFolder.create(tmp_path / "hub", HubOptions(), ["east"])
    with hold(hub.home / ".lock"), pytest.raises(BadInput, match="is open already"), open_hub(hub, pytest.fail):
        pass
    assert not held(hub.home / ".lock")


def test_runs_are_submitted_at_the_port_that_hub_yaml_has_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Begun(Exception):
        pass

    def begin(*_: object, **__: object) -> None:
        raise Begun

    path = HubFolder.create(tmp_path / "hub", HubOptions(insecure=True), ["east"]).path
    port = free_port()
    (path / "hub.yaml").write_text((path / "hub.yaml").read_text().replace("port: 8000", f"port: {port}"))
    monkeypatch.setattr("fedse.apps.flower_server.subprocess.Popen", begin)
    with pytest.raises(Begun), flower_server(HubFolder.existing(path), pytest.fail):
        pass
    assert f'address = "127.0.0.1:{port}"' in (path / "flower/config.toml").read_text()


def test_a_folder_with_another_run_is_refused_before_the_hub_is_opened(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment()
    file = tmp_path / "e.yaml"
    file.write_text(experiment.to_yaml())
    RunFolder.create(tmp_path / "runs" / experiment.name, experiment.to_yaml(), experiment.digest())
    hub = HubFolder.create(tmp_path / "hub", HubOptions(), sorted(experiment.clients))
    with pytest.raises(RunConflict, match=r"clients\.\w+\.worlds.*`--runs FOLDER`") as caught:
        run_hub(hub, file, [], tmp_path / "runs", [], pytest.fail)
    assert "--set name" not in str(caught.value)


def test_a_silent_server_is_mentioned_and_then_given_up() -> None:
    now, answering, said = [0.0], [True], list[str]()
    silence = Silence(lambda: answering[0], said.append, lambda: now[0])

    def pass_(seconds: float) -> None:
        for _ in range(int(seconds)):
            now[0] += 1
            silence.look()

    pass_(20)
    answering[0] = False
    pass_(MENTIONED_AFTER + LOOK)
    assert len(said) == 1 and "has not answered for" in said[0]
    answering[0] = True
    pass_(LOOK)
    assert said[1] == "Flower's server answers again"
    answering[0] = False
    with pytest.raises(ServerLost, match="has not answered for"):
        pass_(GIVEN_UP_AFTER + LOOK)
    assert len(said) == 3


class Trial(SubmittedRun):
    """The process of each try is killed at once, until one of them answers."""

    def __init__(self, folder: Path, start: Callable[[], subprocess.Popen[bytes]], good: int, rounds: bool) -> None:
        self.said: list[str] = []
        self.tries = 0
        self.start, self.good, self.rounds = start, good, rounds
        self.events = folder / "events.jsonl"
        hub = HubFolder(folder, HubOptions(address="127.0.0.1:1"))
        super().__init__(hub, folder / "e.yaml", [], folder, Follower(self.events, []), self.said.append)

    def _submit(self) -> None:
        self._outcome.unlink(missing_ok=True)
        self.tries += 1
        process = self.start()
        wait_for(self._outcome.exists, 60, "the process")
        if self.rounds:
            with self.events.open("a") as events:
                done = RoundFinished(round=self.tries, seconds=1.0, refused={}, contributed=[])
                events.write(json.dumps({"time": 0, **done.to_json()}) + "\n")
        if self.tries == self.good:
            self._outcome.write_text(json.dumps({"adapter": "abc"}))
        else:
            process.send_signal(signal.SIGKILL)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    monkeypatch.setattr(submitted_run, "answers", lambda hub: True)
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_a_killed_process_of_the_run_is_replaced(
    living: Callable[[], subprocess.Popen[bytes]], server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    trial = Trial(tmp_path, living, good=3, rounds=False)
    began = time.monotonic()
    assert trial.result(server) == {"adapter": "abc"} and trial.tries == 3
    assert time.monotonic() - began < 30
    assert ["has ended without a result. Resuming after" in text for text in trial.said] == [True, True]


@pytest.mark.slow
def test_a_run_that_is_lost_again_and_again_is_given_up_unless_rounds_are_made(
    living: Callable[[], subprocess.Popen[bytes]], server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    hopeless = Trial(tmp_path, living, good=99, rounds=False)
    with pytest.raises(HubFailed, match=r"the hub gives up; .*the same command resumes"):
        hopeless.result(server)
    assert hopeless.tries == MOST_LOSSES + 1 and len(hopeless.said) == MOST_LOSSES
    unlucky = Trial(tmp_path, living, good=MOST_LOSSES + 3, rounds=True)
    assert unlucky.result(server) == {"adapter": "abc"}


def test_a_run_that_ends_before_it_says_a_word_is_noticed_at_once(
    living: Callable[[], subprocess.Popen[bytes]],
    server: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when its module cannot be imported."""
    monkeypatch.setattr(submitted_run, "ended", lambda hub: True)
    with pytest.raises(RunLost, match="has not started"):
        Trial(tmp_path, living, good=0, rounds=False)._watch(server)


def test_a_server_that_has_ended_takes_the_process_of_its_run_along(
    living: Callable[[], subprocess.Popen[bytes]], server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    trial = Trial(tmp_path, living, good=0, rounds=False)
    process = living()
    wait_for(trial._outcome.exists, 60, "the process")
    server.kill()
    with pytest.raises(ServerLost, match=r"has ended \(code -9\)"):
        trial._watch(server)
    trial.end()
    assert process.wait(timeout=10) == -signal.SIGKILL
