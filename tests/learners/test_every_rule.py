"""Every learning rule, in a federation of two: killed it resumes to the same bits, and engines agree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bandit_world import bandit

import fedse
from fedse.runs.reading import RunView

KILLED_AT = Path(__file__).parents[1] / "invariants/killed_at.py"
RULES = [
    "group_policy_gradient",
    "kto",
    "dpo",
    "sppo",
    "self_imitation",
    "spear",
    "likelihood_replay",
    "soft_labels",
    "distillation",
    "familiar",
]


def of_two(rule: str, **changes: Any) -> fedse.Experiment:
    """Two rounds, for what a rule keeps of earlier ones."""
    sites = {name: {"worlds": ["bandit_world:Bandit"]} for name in ("one", "two")}
    return fedse.Experiment(**bandit(rule, rounds=2, exploration={"tasks": 3, "attempts": 4}, clients=sites, **changes))


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_killed_at_a_file_operation_ends_the_same(rule: str, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(of_two(rule).to_yaml())

    def killed_at(*runs: tuple[int, Path]) -> list[list[str]]:
        words = [str(word) for run in runs for word in run]
        paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, str(KILLED_AT), str(file), *words]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=500, env={**os.environ, "PYTHONPATH": paths}
        )
        return [line.split() for line in done.stdout.splitlines()]

    ((digest, operations, ended),) = killed_at((0, tmp_path / "whole"))
    assert ended == "0" and digest != RunView.existing(tmp_path / "whole" / rule).digest_of(0)
    at = int(operations) * 3 // 4
    killed, resumed = killed_at((at, tmp_path / "killed"), (0, tmp_path / "killed"))
    assert killed == [str(-signal.SIGKILL)] and (resumed[0], resumed[-1]) == (digest, "0")


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_is_not_nice")
@pytest.mark.parametrize("rule", RULES)
def test_the_engines_agree_on_a_rule(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    here = fedse.run(of_two(rule), tmp_path / "here")
    # With two cores for each client, both are in one worker process: each process imports a language model.
    there = fedse.run(of_two(rule, engine={"name": "flower", "cpus_per_client": 2}), tmp_path / "there")
    assert there.adapter.digest() == here.adapter.digest() != RunView.existing(here.folder).digest_of(0)
