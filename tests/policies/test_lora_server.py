"""Playing through a server that takes adapters at run time: the same replies as here, by plain peft behind HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lora_stand_in import StandIn

import fedse
from fedse.errors import BadInput, ServerFailed, SwapFailed
from fedse.models.tiny import Tiny
from fedse.policies.lora_server import LoraServerPolicy
from fedse.policies.transformer import TransformerPolicy
from fedse.protocols import Reply
from fedse.servers.asking import Asking, Conversation
from fedse.types import Adapter, Sampling

pytest.importorskip("openai")

SERVERS = [("vllm", "/v1"), ("sglang", "")]


@pytest.fixture(scope="module")
def model() -> Tiny:
    return Tiny(width=32, layers=2, context=256)


def moved(model: Tiny, seed: int) -> Adapter:
    """An adapter that changes what the model says."""
    start, random = model.initial_adapter(0), np.random.default_rng(seed)
    tensors = {
        name: value + random.normal(0, 0.3, value.shape).astype(np.float32) for name, value in start.tensors.items()
    }
    return replace(start, tensors=tensors)


def replies(policy, model: Tiny, temperature: float = 0.0) -> dict[int, tuple[tuple[int, ...], tuple[float, ...]]]:
    """Two turns of three conversations."""
    chat, found = model.chat, {}
    slots = [policy.open(chat.opening(f"Rules {number}"), Sampling(number, temperature)) for number in range(3)]
    for turn in ("north?", "and then?"):
        for slot in slots:
            policy.extend(slot, chat.turn(turn))
        waiting = set(slots)
        while waiting:
            for reply in policy.ready():
                waiting.remove(reply.slot)
                found[reply.slot] = (*found.get(reply.slot, ()), (reply.ids, reply.log_probs))
    for slot in slots:
        policy.close(slot)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("server", "route"), SERVERS)
def test_replies_are_those_of_the_model_here(server: str, route: str, model: Tiny, tmp_path: Path) -> None:
    here = TransformerPolicy(model, slots=3, reply_tokens=12)
    with StandIn(model) as there:
        policy = LoraServerPolicy(
            model, server=server, url=there.address + route, reply_tokens=12, adapters=str(tmp_path), retries=0
        )
        for adapter in (moved(model, 1), moved(model, 2)):
            here.load(adapter)
            policy.load(adapter)
            wanted, got = replies(here, model), replies(policy, model)
            assert {slot: [one[0] for one in own] for slot, own in wanted.items()} == {
                slot: [one[0] for one in own] for slot, own in got.items()
            }
        assert len(there.known) == 1  # Earlier adapters are gone there,
        assert len(list(tmp_path.glob("*/*"))) == 1  # and here.
        sampled = replies(policy, model, temperature=1.0)
        assert all(len(ids) == len(log_probs) for own in sampled.values() for ids, log_probs in own)
        assert policy.usage.decoded > 0 and policy.usage.prefilled > 0
        del policy
    assert not list(tmp_path.iterdir())  # A run that has ended leaves nothing behind.


class Slow(Asking[str]):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(slots=2)
        self.gates: list[threading.Event] = []

    def request(self, conversation: Conversation) -> Callable[[], str]:
        gate, asked = threading.Event(), "".join(map(chr, conversation.ids))
        self.gates.append(gate)

        def wait() -> str:
            assert gate.wait(20)
            if asked == "bad":
                raise ServerFailed("gone.")
            return asked

        return wait

    def read(self, slot: int, conversation: Conversation, answer: str) -> Reply:
        return Reply(slot, tuple(map(ord, answer)), ended=True)

    def stop(self) -> None:
        pytest.fail("nobody waits for what failed")


def test_replies_of_closed_conversations_reach_nobody() -> None:
    policy = Slow()
    for text in ("old", "bad"):  # A round that is too late leaves conversations whose replies are under way.
        policy.extend(policy.open([], Sampling(0, 1.0)), list(map(ord, text)))
    for slot in (0, 1):
        policy.close(slot)
    assert policy.ready() == []
    slot = policy.open([], Sampling(0, 1.0))
    policy.extend(slot, list(map(ord, "new")))
    for gate in policy.gates:
        gate.set()
    (reply,) = policy.ready()
    assert (reply.slot, "".join(map(chr, reply.ids))) == (slot, "new")


def test_another_model_behind_the_address_is_found_before_a_run(model: Tiny) -> None:
    with (
        StandIn(Tiny(width=32, layers=2, context=256, seed=5)) as there,
        pytest.raises(BadInput, match="answers as another model"),
    ):
        LoraServerPolicy(model, url=f"{there.address}/v1", retries=0)


def test_an_adapter_that_the_server_leaves_out_is_found(model: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    with StandIn(model) as there:
        policy = LoraServerPolicy(model, url=f"{there.address}/v1", retries=0)
        first = policy._adapters.loaded
        monkeypatch.setattr("fedse.servers.token_server.Vllm.unload", lambda self, name: None)
        honest = StandIn._draw
        monkeypatch.setattr(StandIn, "_draw", lambda self, name, *rest: honest(self, first, *rest))
        with pytest.raises(SwapFailed, match="answers as another model or adapter"):
            policy.load(moved(model, 1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"url": "{address}"}, "has no such route .status 404.: start it with --enable-lora"),
        ({"url": "{address}/v2", "server": "sglang"}, "has no such route .status 404."),
        ({"url": "http://127.0.0.1:9/v1"}, "cannot be reached"),
        ({"url": "{address}/v1", "adapters": "nowhere"}, "policy.adapters: nowhere is no folder"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(options: dict[str, str], sentence: str, model: Tiny) -> None:
    with StandIn(model) as there:
        given = {name: value.format(address=there.address) for name, value in options.items()}
        with pytest.raises(BadInput, match=sentence):
            LoraServerPolicy(model, retries=0, timeout=5, **given)


def test_a_server_without_lora_says_so(model: Tiny) -> None:
    with (
        StandIn(model, loads=False) as there,
        pytest.raises(BadInput, match="refused an adapter: LoRA is not enabled"),
    ):
        LoraServerPolicy(model, server="sglang", url=there.address, retries=0)


def test_a_served_model_is_trained_nowhere_and_refused() -> None:
    from fedse.models.served import Served

    with pytest.raises(BadInput, match="goes with policy 'api'"):
        LoraServerPolicy(Served(), url="http://127.0.0.1:9/v1")  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_experiment_plays_there_and_learns_here(tmp_path: Path) -> None:
    model = {"name": "tiny", "width": 32, "layers": 2, "context": 512}
    experiment = {
        "rounds": 1,
        "model": model,
        "clients": {"east": {"worlds": [{"name": "maze", "rules": "brief", "observation_length": "brief"}]}},
        "start": {"tasks": 1},
        "exploration": {"tasks": 1},
        "evaluation": {"tasks": 1, "test_tasks": 0},
        "learner": {"learning_rate": 1e-2},
    }
    here = {"name": "transformer", "reply_tokens": 8, "slots": 4}
    with StandIn(Tiny(**{key: value for key, value in model.items() if key != "name"})) as there:
        policy = {"name": "lora_server", "url": f"{there.address}/v1", "reply_tokens": 8, "slots": 4, "retries": 0}
        runs = [
            fedse.run({"name": name, "policy": own, **experiment}, tmp_path, verbose=False)
            for name, own in (("there", policy), ("here", here))
        ]
        asked = sum(path == "/v1/completions" for path, _ in there.bodies)
    assert asked > 2
    # An untrained model succeeds in nothing, so both learn from the same demonstrations, here.
    first, second = ((run.folder / "rounds/0001/adapter/adapter_model.safetensors").read_bytes() for run in runs)
    assert first == second
