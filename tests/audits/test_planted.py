"""The audit of canaries: what it makes again is what was planted, and it refutes no epsilon where nothing was learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.audits.membership import audit
from fedse.audits.planted import audit_canaries, with_canaries
from fedse.audits.seats import CONTROL, HUB
from fedse.cli.audit_tables import canary_table
from fedse.cli.tables import markdown
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run

SHORT = {"rules": "bare", "observation_length": "brief"}
CRAFT = {"name": "textcraft", **SHORT, "shallowest": 1, "deepest": 1, "train_tasks": 60}


def experiment(**changes: Any) -> Experiment:
    content: dict[str, Any] = {
        "name": "planted",
        "rounds": 1,
        "model": {"name": "tiny", "width": 32, "layers": 1, "context": 1024, "lora": {"rank": 8}, "threads": 1},
        "clients": {"craft": {"worlds": [CRAFT]}},
        "start": {"name": "canaries", "tasks": 10, "canaries": 24},
        "exploring": False,
        "evaluation": {"tasks": 1, "test_tasks": 0},
        "learner": {"learning_rate": 0.01, "epochs": 1, "batch_size": 4},
        "policy": {"slots": 2, "reply_tokens": 2},
    }
    return Experiment(**{**content, **changes})


@pytest.mark.slow
def test_both_bounds_stand_beside_each_other_and_demonstrations_are_audited_as_before(tmp_path: Path) -> None:
    noisy = {"name": "dp_imitation", "noise_multiplier": 4.0, "sampling_rate": 0.5, "epochs": 1, "delta": 1e-4}
    folder = fedse.run(experiment(learner=noisy), tmp_path).folder
    with open_run(folder) as opened:
        (client,) = with_canaries(opened, opened.clients)
        found = audit_canaries(opened, client, 1)
        (world,) = audit(opened, client, 1)["worlds"]
    assert world["members"] + world["left_out"] >= 10 and world["others"] > 30
    (canaries,) = found["worlds"]
    assert canaries["canaries"] == 24 and 4 < canaries["planted"] < 20
    rows = {(row["seat"], row["attack"]): row for row in canaries["rows"]}
    assert rows[HUB, "loss"]["epsilon"] <= found["upper_bound"] < 5 and found["delta"] == 1e-4
    assert rows[CONTROL, "loss"]["epsilon"] == 0.0
    assert json.loads((folder / "evaluations/canaries-0001-craft.json").read_text()) == found
    assert f"upper bound of the accountant {found['upper_bound']:.2f}" in markdown(canary_table(found, canaries))
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event for event in events if event.get("kind") == "canaries"]


def test_a_run_without_canaries_is_told_so(tmp_path: Path) -> None:
    folder = fedse.run(experiment(name="plain", start={"tasks": 10}), tmp_path).folder
    with open_run(folder) as opened, pytest.raises(BadInput, match="no canaries were planted at craft"):
        with_canaries(opened, opened.clients)


@pytest.mark.torture
def test_what_is_learned_by_heart_refutes_a_small_epsilon(tmp_path: Path) -> None:
    made = experiment(
        model={"name": "tiny", "width": 64, "layers": 2, "context": 1024, "lora": {"rank": 32}, "threads": 1},
        learner={"learning_rate": 0.02, "epochs": 60, "batch_size": 4},
        start={"name": "canaries", "tasks": 2, "canaries": 40},
    )
    with open_run(fedse.run(made, tmp_path).folder) as opened:
        found = audit_canaries(opened, opened.clients[0], 1)
    rows = {(row["seat"], row["attack"]): row for row in found["worlds"][0]["rows"]}
    assert rows[HUB, "change since the beginning"]["epsilon"] > 1.0 and found["upper_bound"] is None
