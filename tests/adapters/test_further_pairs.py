"""Pairs of factors beside the shared one: in files that PEFT reads, in a running model, and while learning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from fedse.adapters.files import CONFIG, TENSORS, read_adapter, write_adapter  # noqa: E402
from fedse.adapters.plan import PERSONAL, RESIDUAL, factor, in_part, part  # noqa: E402
from fedse.learners.imitation import Imitation  # noqa: E402
from fedse.models.tiny import Tiny  # noqa: E402
from fedse.networks.decoding.probe import probe_gap  # noqa: E402
from fedse.networks.swap import load_adapter, train_only  # noqa: E402
from fedse.networks.swap import read_adapter as read_out  # noqa: E402
from fedse.policies.transformer import TransformerPolicy  # noqa: E402
from fedse.starts.demonstrations import Demonstrations  # noqa: E402
from fedse.types import Adapter, Lesson  # noqa: E402
from fedse.worlds.maze import Maze  # noqa: E402

IDS = list(b"Thought: here is some text.")


@pytest.fixture(scope="module")
def model() -> Tiny:
    return Tiny(width=32, layers=1, device="cpu", context=2048, threads=1)


def widened(model: Tiny, **ranks: int) -> Adapter:
    """A random adapter with further pairs of these ranks."""
    draw = np.random.default_rng(1)
    start = model.initial_adapter(0)
    shapes = {name: tensor.shape for name, tensor in start.tensors.items()}
    for other, rank in ranks.items():
        for name, shape in list(shapes.items()):
            if not part(name):
                shapes[in_part(name, other)] = (rank, shape[1]) if factor(name) == "A" else (shape[0], rank)
    tensors = {name: (0.2 * draw.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    return Adapter(tensors, start.config)


def logits(network: Any) -> Any:
    with torch.no_grad():
        return network(input_ids=torch.tensor([IDS]), use_cache=False).logits


@pytest.mark.parametrize("ranks", [{}, {RESIDUAL: 5}, {PERSONAL: 3}, {RESIDUAL: 5, PERSONAL: 3}])
def test_plain_peft_loads_the_folder_and_answers_alike(model: Tiny, ranks: dict[str, int], tmp_path: Path) -> None:
    adapter = widened(model, **ranks)
    write_adapter(adapter, tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    assert config["r"] == 8 + sum(ranks.values())
    assert config["lora_alpha"] / config["r"] == 2.0
    assert len(load_file(tmp_path / TENSORS)) == len(model.initial_adapter(0).tensors)

    back = read_adapter(tmp_path)
    assert back.digest() == adapter.digest()
    assert back.config == adapter.config

    base, _ = Tiny(width=32, layers=1, device="cpu").load(torch.float32)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path).eval()
    load_adapter(model.network, adapter)
    torch.testing.assert_close(logits(loaded), logits(model.network), atol=1e-4, rtol=1e-4)


def test_pairs_come_and_go_with_the_adapter(model: Tiny) -> None:
    plain = widened(model)
    load_adapter(model.network, plain)
    before = logits(model.network)
    for ranks in ({RESIDUAL: 5}, {RESIDUAL: 9, PERSONAL: 2}, {PERSONAL: 2}):
        adapter = widened(model, **ranks)
        load_adapter(model.network, adapter)
        assert read_out(model.network, adapter).digest() == adapter.digest()
        assert not torch.allclose(logits(model.network), before, atol=1e-2)
        assert model.initial_adapter(0).layout == plain.layout
    load_adapter(model.network, plain)
    assert torch.equal(logits(model.network), before)


def test_the_policy_answers_with_all_pairs(model: Tiny) -> None:
    """Loading probes that decoding agrees with a plain pass; the pairs have to be in both."""
    policy = TransformerPolicy(model, slots=4)
    adapter = widened(model, **{RESIDUAL: 5, PERSONAL: 3})
    policy.load(adapter)
    assert probe_gap(policy.model, policy._decoder) < 1e-4
    load_adapter(model.network, widened(model))
    assert probe_gap(policy.model, policy._decoder) > 1e-3


def test_merging_takes_every_pair(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    own = Tiny(width=32, layers=1, device="cpu", threads=1)
    adapter = widened(own, **{RESIDUAL: 5})
    load_adapter(own.network, adapter)
    expected = logits(own.network)
    own.save_merged(adapter, tmp_path)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(logits(merged), expected, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def demonstrations(model: Tiny) -> Any:
    world = Maze(rules="brief", observation_length="brief")
    return Demonstrations(4).trajectories("maze", "maze", world, model.chat, 0)


def test_learning_leaves_frozen_tensors_as_they_were_and_moves_the_others(model: Tiny, demonstrations: Any) -> None:
    adapter = widened(model, **{RESIDUAL: 5, PERSONAL: 3})
    fixed = frozenset(
        name for name in adapter.tensors if part(name) == RESIDUAL or (factor(name) == "A" and not part(name))
    )
    start = Adapter(adapter.tensors, adapter.config, fixed)
    # Weight decay would show a tensor that the optimiser only believes to have no gradient.
    learner = Imitation(model, epochs=1, batch_size=2, learning_rate=1e-3, weight_decay=0.1)
    learned, _ = learner.learn(Lesson(start, demonstrations, 1))
    for name, tensor in adapter.tensors.items():
        assert np.array_equal(learned.tensors[name], tensor) == (name in fixed), name
    # What is frozen for one round is not for the next.
    again, _ = learner.learn(Lesson(adapter, demonstrations, 1))
    assert all(not np.array_equal(again.tensors[name], tensor) for name, tensor in adapter.tensors.items())


def test_frozen_tensors_get_no_gradient(model: Tiny) -> None:
    adapter = widened(model)
    chosen = sorted(adapter.tensors)[0]
    load_adapter(model.network, adapter)
    train_only(model.network, Adapter(adapter.tensors, adapter.config, frozenset({chosen})))
    trained = [name for name, parameter in model.network.named_parameters() if parameter.requires_grad]
    assert len(trained) == len(adapter.tensors) - 1
    assert all(".lora_" in name for name in trained)


def test_learning_goes_on_after_another_adapter_without_further_pairs_was_played(
    model: Tiny, demonstrations: Any
) -> None:
    adapter = widened(model, **{PERSONAL: 3})
    learner = Imitation(model, epochs=1, batch_size=2, learning_rate=1e-3)
    first, _ = learner.learn(Lesson(adapter, demonstrations, 1))
    load_adapter(model.network, model.initial_adapter(0))  # The network loses the pair and gets a new one later.
    again, _ = learner.learn(Lesson(adapter, demonstrations, 1))
    assert again.digest() == first.digest()
    assert all(not np.array_equal(again.tensors[name], tensor) for name, tensor in adapter.tensors.items())
