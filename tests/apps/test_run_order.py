"""Sites hear nothing of the hub's own files: what it wants run stands in a file, not in what Flower hands to everybody."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedse.apps.hub_folder import HubFolder, HubOptions
from fedse.apps.run_order import KEYS, take_order, withdraw_order
from fedse.apps.submitted_run import SubmittedRun


def test_a_submitted_run_carries_no_path_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = HubFolder.create(tmp_path / "hub", HubOptions(address="hub.example:8443"), ["east"])
    hub.home.mkdir(exist_ok=True)
    commands: list[list[str]] = []

    def called(command: list[str], **_: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", called)
    silent: Any = SimpleNamespace(rounds=0)
    run = SubmittedRun(hub, tmp_path / "experiment.yaml", ["seed=3"], tmp_path / "runs", silent, print)
    run._submit()
    ((_, *arguments),) = commands
    # The bundle is the same for every hub, and nothing is added to it.
    assert arguments == ["run", str(hub.path / "bundle"), "hub"]
    assert str(tmp_path) not in (hub.path / "bundle/pyproject.toml").read_text()
    monkeypatch.setenv("FLWR_HOME", str(hub.home))
    order = take_order({"experiment": "by hand"})
    assert set(order) == set(KEYS)
    assert (order["experiment"], order["settings"]) == (str(tmp_path / "experiment.yaml"), "seed=3")
    assert take_order({"experiment": "by hand"}) == {"experiment": "by hand"}, "it is taken once"
    run._submit()
    withdraw_order(hub.home)
    assert take_order({"experiment": "by hand"}) == {"experiment": "by hand"}
    monkeypatch.delenv("FLWR_HOME")
    assert take_order({"experiment": "by hand"}) == {"experiment": "by hand"}
