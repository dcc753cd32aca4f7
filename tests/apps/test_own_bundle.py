"""A site runs fedse's own bundle and no other, whatever the hub ships."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deployment import Deployment, wait_for
from typer.testing import CliRunner

pytest.importorskip("flwr")

from flwr.cli.build import build_fab_from_disk, build_fab_from_files
from flwr.supercore.fab import Fab
from flwr.supernode import start_client_internal as flower

import fedse
from fedse.apps.own_bundle import BUNDLE, foreign, guard
from fedse.apps.site import _pass_on
from fedse.cli import app
from fedse.engines.flower.grid import _KINDS
from fedse.runs.folder import RunFolder

EVIL = {
    "pyproject.toml": b"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "fedse-bundle"
version = "1.0.0"
description = "Federated self-evolution with fedse"
dependencies = []
[tool.flwr.app]
publisher = "fedse"
[tool.flwr.app.components]
serverapp = "evil:server"
clientapp = "evil:client"
[tool.flwr.app.config]
""",
    "evil.py": b"""
import os
import time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
server = ServerApp()
client = ClientApp()

@server.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.2)
    messages = [Message(RecordDict({"c": ConfigRecord()}), dst_node_id=n, message_type="train") for n in nodes]
    replies = list(grid.send_and_receive(messages, timeout=60))
    Path(os.environ["FEDSE_TEST_FLAGS"], "answered").write_text(str([r.error.code for r in replies if r.has_error()]))

@client.train()
def train(message, context):
    Path(os.environ["FEDSE_TEST_FLAGS"], "evil").touch()
    return Message(RecordDict({"c": ConfigRecord()}), reply_to=message)
""",
}


def run_of(content: bytes, **changes: Any) -> SimpleNamespace:
    told = {"fab_id": "fedse/fedse-bundle", "fab_version": "1.0.0", "fab_hash": hashlib.sha256(content).hexdigest()}
    return SimpleNamespace(**{"primary_task_type": "flwr-serverapp", **told, **changes})


def bundle_of(content: bytes) -> Fab:
    return Fab(hashlib.sha256(content).hexdigest(), content, {})


@pytest.fixture(scope="module")
def own() -> bytes:
    return build_fab_from_disk(BUNDLE)


def test_the_own_bundle_is_taken_as_the_hub_builds_it_with_and_without_keys(own: bytes, tmp_path: Path) -> None:
    assert foreign(bundle_of(own), run_of(own)) == ""
    for insecure in (False, True):
        path = tmp_path / f"hub-{insecure}"
        line = ["hub", "init", str(path), "--site", "east", *(["--insecure"] if insecure else [])]
        assert CliRunner().invoke(app, line).exit_code == 0
        content = build_fab_from_disk(path / "bundle")
        assert foreign(bundle_of(content), run_of(content)) == ""
        # A hub of an older fedse gets the bundle of this one when it is made again.
        file = path / "bundle/pyproject.toml"
        new = file.read_text()
        file.write_text(new.replace("1.0.0", "0.9.0"))
        assert CliRunner().invoke(app, line).exit_code == 0
        assert file.read_text() == new


def with_files(own: bytes, *names: str, **changed: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(own)) as before, zipfile.ZipFile(made, "w") as after:
        for name in before.namelist():
            after.writestr(name, changed.get(name.split(".")[0], before.read(name)))
        for name in names:
            after.writestr(name, b"import os")
    return made.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda own: build_fab_from_files(EVIL)[0], "code of its own"),
        (lambda own: with_files(own, "fedse/__init__.py"), "code of its own"),
        (lambda own: with_files(own, "pyproject.toml"), "code of its own"),
        (lambda own: with_files(own, pyproject=EVIL["pyproject.toml"]), "names other modules"),
        (lambda own: with_files(own, pyproject=b"x" * 200_000), "too large"),
        (lambda own: with_files(own, pyproject=b"= ="), "cannot be read"),
        (lambda own: with_files(own, pyproject=b"tool = 1"), "cannot be read"),
        (lambda own: own[: len(own) // 2], "cannot be read"),
        (lambda own: b"", "cannot be read"),
    ],
)
def test_any_other_bundle_is_foreign(own: bytes, change: Callable[[bytes], bytes], reason: str) -> None:
    content = change(own)
    assert reason in foreign(bundle_of(content), run_of(content))


@pytest.mark.parametrize(
    "change",
    [
        {"fab_id": "evil/app"},
        {"fab_id": "fedse/../../x"},
        {"fab_version": "1.0.1"},
        {"fab_hash": "0" * 64},
        {"primary_task_type": "flwr-agentapp"},
    ],
)
def test_the_own_bundle_under_another_name_is_foreign(own: bytes, change: dict[str, str]) -> None:
    assert foreign(bundle_of(own), run_of(own, **change))
    assert foreign(Fab("0" * 64, own, {}), run_of(own, fab_hash="0" * 64))


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Flower's SuperNode as fedse starts it, and what it tells."""
    for name in ("_pull_and_store_message", "_verify_fab"):
        monkeypatch.setattr(flower, name, getattr(flower, name))
    told: list[str] = []
    guard(told.append)
    yield told


@pytest.mark.parametrize("evil", [True, False])
def test_flowers_supernode_answers_a_foreign_bundle_with_an_error_and_stores_nothing_of_it(
    evil: bool, own: bytes, guarded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = build_fab_from_files(EVIL)[0] if evil else own
    stored: list[str] = []
    replies: list[Any] = []

    class Stop(Exception):
        pass

    class State:
        def get_run(self, number: int) -> None:
            return None

        def __getattr__(self, name: str) -> Any:
            if name == "store_fab":
                raise Stop
            return lambda *_, **__: stored.append(name)

    monkeypatch.setattr(flower, "Message", lambda error, reply_to: error)
    monkeypatch.setattr(flower, "_insert_message", lambda reply, state, store: replies.append(reply))
    metadata = SimpleNamespace(run_id=1, group_id="", message_type="train", message_id="m")
    run = run_of(content, override_config={}, series_id=0, run_id=1)
    # A hub may claim that somebody vouches for it.
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {"valid_license": "yes", "fedse": "fedse"})
    given: dict[str, Any] = {
        "state": State(),
        "object_store": None,
        "node_config": {},
        "receive": lambda: (SimpleNamespace(metadata=metadata), None),
        "get_run": lambda number: run,
        "get_fab": lambda name, number: fab,
        "pull_object": None,
        "confirm_message_received": None,
        "trusted_entities": None,
    }
    monkeypatch.setattr(flower, "Context", lambda **_: SimpleNamespace())
    if evil:
        assert flower._pull_and_store_message(**given) == 1
        assert _KINDS[replies[0].code] == "BundleRefused" and stored == []
        assert "code of its own. It was refused, and nothing of it was run" in guarded[0]
    else:
        with pytest.raises(Stop):
            flower._pull_and_store_message(**given)
        assert replies == [] and guarded == []


def test_another_version_of_flower_is_not_trusted_to_be_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower, "_pull_and_store_message", lambda state: None)
    with pytest.raises(Exception, match="takes bundles in another way"):
        guard(print)


def test_what_the_supernode_tells_reaches_the_operator_once(tmp_path: Path) -> None:
    log, said = tmp_path / "log", []
    log.write_text("INFO: x\nfedse tells the site: one\nfedse tells the site: ha")
    end = _pass_on(log, 0, said.append)
    with log.open("a") as file:
        file.write("lf\nINFO\n")
    _pass_on(log, end, said.append)
    assert said == ["one", "half"]


EXPERIMENT = """
name: one
rounds: 1
model: table
policy: table
learner: table
clients: {east: {worlds: [{name: maze, mode: original}]}}
start: {tasks: 3}
exploration: {tasks: 10}
evaluation: {tasks: 1, test_tasks: 0}
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_of_what_flwr_run_submits_a_site_runs_the_own_bundle_and_no_other(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    for name, content in EVIL.items():
        (app / name).write_bytes(content)
    with Deployment(tmp_path / "d", EXPERIMENT, ["east"]) as d:
        environment = {**d.environment(), "FLWR_HOME": str(d.hub / "flower"), "FLWR_TELEMETRY_ENABLED": "0"}
        flwr = [str(Path(sys.executable).parent / "flwr"), "run"]

        def submit(bundle: Path, *more: str) -> None:
            line = [*flwr, str(bundle), "hub", *more]
            subprocess.run(line, env=environment, check=True, timeout=120, capture_output=True)

        d.open_hub()
        d.start_site("east")
        wait_for(lambda: "ready" in d.log("east"), 60, "the site")
        submit(app)
        wait_for((d.flags / "answered").exists, 120, "the answer")
        assert (d.flags / "answered").read_text() == "[7]"
        assert not (d.flags / "evil").exists()
        wait_for(lambda: "code of its own. It was refused" in d.log("east"), 20, "a word to the operator")
        # The same site, right after it: docs/deployment.md, "With Flower's own commands".
        submit(d.hub / "bundle", "-c", f'experiment="{d.experiment}" runs="{d.runs}"')
        wait_for(lambda: d.reports("one"), 120, "the run")
        wait_for(lambda: RunFolder.existing(d.runs / "one").last_round() == 1, 60, "its manifest")
        local = fedse.run(fedse.load_experiment(d.experiment), tmp_path / "local")
        assert RunFolder.existing(d.runs / "one").digest_of(1) == local.adapter.digest()
