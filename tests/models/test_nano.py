"""The model inside the package: small, whole, and fluent in the form of four worlds."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from fedse.models.nano import weights_folder
from fedse.models.tiny import TEMPLATE
from fedse.plugins import build
from fedse.rollouts.replies import compose
from fedse.seeds import generator

pytest.importorskip("peft")

from fedse.experiments.options import load_experiment


@pytest.fixture(scope="module")
def nano() -> Any:
    from fedse.models.nano import Nano

    return Nano(device="cpu", threads=1)


@pytest.fixture(scope="module")
def demo() -> Any:
    from importlib.resources import files

    return load_experiment(str(files("fedse.cli") / "demo.yaml"))


def test_its_files_are_the_ones_that_were_documented_and_small() -> None:
    weights = (weights_folder() / "model.safetensors").read_bytes()
    told = json.loads((weights_folder() / "pretraining.json").read_text())
    assert hashlib.sha256(weights).hexdigest() == told["sha256"]
    assert len(weights) == told["bytes"] < 8_000_000


def test_its_chat_template_is_the_one_in_the_code(nano: Any) -> None:
    assert nano.tokenizer.chat_template == TEMPLATE


def test_it_is_a_llama_of_a_few_million_bfloat16_parameters(nano: Any) -> None:
    config = json.loads((weights_folder() / "config.json").read_text())
    assert (config["model_type"], config["dtype"]) == ("llama", "bfloat16")
    count = sum(parameter.numel() for name, parameter in nano.network.named_parameters() if "lora" not in name)
    assert 1_000_000 <= count <= 4_000_000


@pytest.mark.slow
@pytest.mark.parametrize("client", ["maze", "textcraft", "babyai", "webshop"])
def test_whole_episodes_of_every_world_fit_and_read_back(nano: Any, demo: Any, client: str) -> None:
    """Also the longest way to lose: no episode of the demo may end because the context is full."""
    world = build("world", demo.clients[client].worlds[0])
    random = generator("test nano", client)
    for task in world.tasks("validation")[:10]:
        observation, _ = world.reset(options={"task": task.id})
        ids = nano.chat.opening(world.rules)
        while True:
            action = world.trivial(random.random())
            reply = nano.chat.reply(compose("", action))
            assert nano.chat.text(reply).endswith(f"Action: {action}")
            ids += [*nano.chat.turn(observation), *reply]
            observation, _, terminated, truncated, _ = world.step(action)
            if terminated or truncated:
                break
        assert len(ids) < nano.context


@pytest.mark.slow
def test_it_speaks_the_form_of_replies(nano: Any, demo: Any) -> None:
    from functools import partial

    from fedse.policies.transformer import TransformerPolicy
    from fedse.rollouts.player import Player
    from fedse.types import Episode, Purpose, Sampling

    policy = TransformerPolicy(nano, slots=32, reply_tokens=48)
    adapter = nano.initial_adapter(0)
    policy.load(adapter)
    player = Player(policy, nano.chat, nano.context)
    for client in ("maze", "textcraft", "babyai"):
        make_world = partial(build, "world", demo.clients[client].worlds[0])
        episodes = [
            Episode("site", client, make_world, task, Purpose.EVALUATE, 0, 0, Sampling(0, 0.0))
            for task in make_world().tasks("validation")[:16]
        ]
        played = player.play(episodes, adapter.digest())
        invalid = sum(trajectory.invalid_actions for trajectory in played)
        assert invalid < 0.25 * sum(len(trajectory.steps) for trajectory in played), client
