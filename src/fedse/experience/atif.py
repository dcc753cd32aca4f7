"""Trajectories in ATIF, the Agent Trajectory Interchange Format that Harbor defines and OpenEnv reads.

A conversation becomes the rules (user), the fixed acceptance (agent, no model was asked), the first observation (user) and a
step of the agent for each reply, with what the world answered as its observation. Token ids are exact where they are known.
Times are not stored in a trajectory, so they are left out; log-probabilities are given where they were stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from fedse import __version__
from fedse.conversation import ACCEPTANCE
from fedse.types import Outcome, Purpose, Step, Trajectory

SCHEMA = "ATIF-v1.8"


@dataclass(frozen=True, slots=True)
class Agent:
    """Who played, as a reader elsewhere should know it."""

    model: str = ""
    """Name of the base model."""
    tokenizer: str = ""
    """Fingerprint of its tokenizer and chat template; empty where token ids mean nothing outside fedse."""


def document(trajectory: Trajectory, agent: Agent) -> dict[str, Any]:
    """One trajectory as one ATIF document."""
    place = (trajectory.client, trajectory.world, trajectory.task, trajectory.purpose)
    identity = "/".join((*place, f"round {trajectory.round}", f"attempt {trajectory.attempt}"))
    steps = _steps(trajectory, bool(agent.tokenizer))
    return {
        "schema_version": SCHEMA,
        "session_id": identity,
        "trajectory_id": identity,
        "agent": _agent(trajectory, agent),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": _totals(steps),
        "extra": {
            "client": trajectory.client,
            "world": trajectory.world,
            "task": trajectory.task,
            "category": trajectory.category,
            "purpose": trajectory.purpose,
            "round": trajectory.round,
            "attempt": trajectory.attempt,
            "outcome": trajectory.outcome,
            "score": _finite(trajectory.score),
            "rewards": {name: _finite(value) for name, value in trajectory.rewards.items()},
        },
    }


def _agent(trajectory: Trajectory, agent: Agent) -> dict[str, Any]:
    if trajectory.purpose is Purpose.DEMONSTRATE:
        # Somebody else showed it: the world's expert, or whoever was recorded.
        return {"name": "demonstration", "version": __version__, **_tokenizer(agent)}
    told = {"model_name": agent.model} if agent.model else {}
    return {"name": "fedse", "version": __version__, **told, **_tokenizer(agent, adapter=trajectory.adapter)}


def _tokenizer(agent: Agent, **further: str) -> dict[str, Any]:
    extra = {**further, "tokenizer": agent.tokenizer}
    return {"extra": {name: value for name, value in extra.items() if value}}


def _steps(trajectory: Trajectory, with_tokens: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if trajectory.rules:
        found.append({"source": "user", "message": trajectory.rules})
        found.append({"source": "agent", "message": ACCEPTANCE, "llm_call_count": 0, "extra": {"learned": False}})
    seen = [*(step.observation for step in trajectory.steps), trajectory.closing]
    found.append({"source": "user", "message": seen[0]})
    metrics = _metrics(trajectory) if with_tokens else [{} for _ in trajectory.steps]
    for step, after, counted in zip(trajectory.steps, seen[1:], metrics, strict=True):
        answered = {"observation": {"results": [{"content": after}]}} if after else {}
        found.append({"source": "agent", "message": step.reply, **answered, **counted, "extra": _told(step)})
    return found


def _told(step: Step) -> dict[str, Any]:
    return {"action": step.action, "valid": step.valid, "learned": step.learned, "reward": _finite(step.reward)}


def _metrics(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Token ids before and of each reply. The mask marks those replies that are learned from, and no others."""
    nothing: list[dict[str, Any]] = [{} for _ in trajectory.steps]
    replies = _marked(trajectory.train_mask)
    learned = [number for number, step in enumerate(trajectory.steps) if step.learned]
    if trajectory.outcome is Outcome.ERROR or len(replies) != len(learned):
        return nothing
    told = iter(trajectory.log_probs)
    for number, (start, end) in zip(learned, replies, strict=True):
        nothing[number] = {
            "metrics": {
                "prompt_tokens": start,
                "completion_tokens": end - start,
                "prompt_token_ids": list(trajectory.token_ids[:start]),
                "completion_token_ids": list(trajectory.token_ids[start:end]),
                **({"logprobs": list(islice(told, end - start))} if trajectory.log_probs else {}),
            }
        }
    return nothing


def _marked(mask: tuple[bool, ...]) -> list[tuple[int, int]]:
    """Where stretches of marked tokens begin and end."""
    found, place = [], 0
    for marked, stretch in groupby(mask):
        end = place + sum(1 for _ in stretch)
        if marked:
            found.append((place, end))
        place = end
    return found


def _totals(steps: list[dict[str, Any]]) -> dict[str, Any]:
    counted = [step["metrics"] for step in steps if "metrics" in step]
    totals: dict[str, Any] = {"total_steps": len(steps)}
    # A total of some replies would pass for one of all.
    if len(counted) == sum(step["source"] == "agent" and "llm_call_count" not in step for step in steps):
        totals["total_prompt_tokens"] = sum(metrics["prompt_tokens"] for metrics in counted)
        totals["total_completion_tokens"] = sum(metrics["completion_tokens"] for metrics in counted)
    return totals


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
