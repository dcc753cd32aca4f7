"""Trajectories as ATIF: the conversation as it was, token by token, in a form that Harbor's own models accept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.experience.atif import Agent, document
from fedse.experience.buffer import read_file
from fedse.experience.export import export
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.types import Outcome, Purpose, Step, Trajectory
from other_packages import unpacked_wheel

CHAT = ByteChat()
MINE = Agent("acme/base", "fingerprint")


def played(*learned: bool) -> Trajectory:
    """An episode with a step for each of these, rendered as a player does."""
    steps = tuple(
        Step(f"seen {number}", f"Action: {number}", "", str(number), number != 1, learned=mark, reward=0.5)
        for number, mark in enumerate(learned)
    )
    ids = CHAT.opening("The rules.")
    mask = [False] * len(ids)
    for step in steps:
        turn, reply = CHAT.turn(step.observation), CHAT.reply(step.reply)
        ids += [*turn, *reply]
        mask += [False] * len(turn) + [step.learned] * len(reply)
    return Trajectory(
        client="site",
        world="maze",
        task="t1",
        purpose=Purpose.EXPLORE,
        round=3,
        attempt=2,
        adapter="digest",
        steps=steps,
        closing="the end",
        outcome=Outcome.SUCCESS,
        score=1.0,
        token_ids=tuple(ids),
        train_mask=tuple(mask),
        rules="The rules.",
        rewards={"judge": 0.25},
    )


def agent_steps(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for step in found["steps"] if step["source"] == "agent" and "llm_call_count" not in step]


def test_a_conversation_is_told_turn_by_turn() -> None:
    found = document(played(True, True), MINE)
    assert [(step["source"], step["message"]) for step in found["steps"]] == [
        ("user", "The rules."),
        ("agent", "OK."),
        ("user", "seen 0"),
        ("agent", "Action: 0"),
        ("agent", "Action: 1"),
    ]
    first, last = agent_steps(found)
    assert first["observation"]["results"] == [{"content": "seen 1"}]
    assert last["observation"]["results"] == [{"content": "the end"}]
    assert last["extra"] == {"action": "1", "valid": False, "learned": True, "reward": 0.5}
    assert (found["agent"]["model_name"], found["agent"]["extra"]["adapter"]) == ("acme/base", "digest")
    told = found["extra"]
    assert (told["world"], told["round"], told["outcome"], told["rewards"]) == ("maze", 3, "success", {"judge": 0.25})


def test_token_ids_are_those_that_were_read_and_written() -> None:
    trajectory = played(True, True, True)
    found = document(trajectory, MINE)
    for step, metrics in zip(trajectory.steps, (step["metrics"] for step in agent_steps(found)), strict=True):
        before, reply = metrics["prompt_token_ids"], metrics["completion_token_ids"]
        assert CHAT.text(reply) == step.reply and reply == CHAT.reply(step.reply)
        assert CHAT.messages(before)[-1]["content"] == step.observation
        assert trajectory.token_ids[: len(before) + len(reply)] == (*before, *reply)
        assert (metrics["prompt_tokens"], metrics["completion_tokens"]) == (len(before), len(reply))
    assert found["final_metrics"]["total_completion_tokens"] == sum(trajectory.train_mask)


def test_log_probabilities_stand_beside_the_ids_they_are_of() -> None:
    trajectory = played(True, False, True)
    assert not any("logprobs" in step.get("metrics", {}) for step in agent_steps(document(trajectory, MINE)))
    told = tuple(-0.5 * number for number in range(trajectory.agent_tokens))
    first, _, last = agent_steps(document(replace(trajectory, log_probs=told), MINE))
    assert (*first["metrics"]["logprobs"], *last["metrics"]["logprobs"]) == told
    for step in (first, last):
        assert len(step["metrics"]["logprobs"]) == step["metrics"]["completion_tokens"]


def test_a_reply_that_nobody_learns_from_has_no_ids_and_the_others_keep_theirs() -> None:
    found = document(played(True, False, True), MINE)
    assert ["metrics" in step for step in agent_steps(found)] == [True, False, True]
    assert CHAT.text(agent_steps(found)[2]["metrics"]["completion_token_ids"]) == "Action: 2"
    assert "total_completion_tokens" not in found["final_metrics"], "a total of some replies would pass for one of all"


@pytest.mark.parametrize("agent", [Agent("acme/base"), Agent()])
def test_bytes_are_not_told_as_token_ids(agent: Agent) -> None:
    found = document(played(True), agent)
    assert "metrics" not in agent_steps(found)[0] and "tokenizer" not in found["agent"]["extra"]


def test_a_mask_that_does_not_fit_gives_no_ids() -> None:
    assert "metrics" not in agent_steps(document(replace(played(True), train_mask=(True, False) * 40), MINE))[0]


def test_a_demonstration_names_no_model() -> None:
    found = document(replace(played(True), purpose=Purpose.DEMONSTRATE, adapter=""), MINE)
    assert found["agent"]["name"] == "demonstration" and "model_name" not in found["agent"]
    assert "metrics" in agent_steps(found)[0]


def test_an_infinite_score_is_left_out_of_the_json(tmp_path: Path) -> None:
    export([replace(played(True), score=float("inf"))], tmp_path / "out.atif", MINE)
    (line,) = (tmp_path / "out.atif").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["extra"]["score"] is None


VALIDATE = """
import json, sys
from harbor.models.trajectories import Trajectory
for line in open(sys.argv[1], encoding="utf-8"):
    found = Trajectory.model_validate_json(line)
    assert found.model_dump(mode="json", exclude_unset=True) == json.loads(line), "nothing is dropped or changed"
    print(found.trajectory_id)
"""


@pytest.mark.torture
def test_harbors_own_models_accept_what_a_run_exports(tiny_experiment: Experiment, tmp_path: Path) -> None:
    harbor = unpacked_wheel("harbor", tmp_path, python="3.12")
    run = fedse.run(tiny_experiment, tmp_path).folder
    target = tmp_path / "out.atif"
    done = CliRunner().invoke(app, ["export", str(run), str(target)])
    assert done.exit_code == 0, done.output
    program = [sys.executable, "-c", VALIDATE, str(target)]
    checked = subprocess.run(
        program, env={**os.environ, "PYTHONPATH": str(harbor)}, capture_output=True, text=True, timeout=120
    )
    assert checked.returncode == 0, checked.stderr
    held = [item for client in ("maze", "wordle") for item in read_file(run / f"clients/{client}/buffer.sqlite")]
    names = checked.stdout.splitlines()
    assert len(names) == len(set(names)) == len(held) > 5
    tokenizer = pytest.importorskip("fedse.models.tiny").byte_tokenizer()
    for line, trajectory in zip(target.read_text().splitlines(), held, strict=True):
        for step, told in zip(trajectory.steps, agent_steps(json.loads(line)), strict=True):
            written = told["metrics"]["completion_token_ids"]
            assert tokenizer.decode(written, skip_special_tokens=True) == step.reply
    broken = json.loads(target.read_text().splitlines()[0])
    broken["steps"][0]["metrics"] = {"prompt_tokens": 1}
    target.write_text(json.dumps(broken) + "\n")
    refused = subprocess.run(program, env={**os.environ, "PYTHONPATH": str(harbor)}, capture_output=True, text=True)
    assert refused.returncode == 1 and "only applicable when source is 'agent'" in refused.stderr
