"""The scale of an adapter's product: by hand, in decoding and learning, and in plain PEFT, also with further pairs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from fedse.adapters.files import read_adapter, write_adapter  # noqa: E402
from fedse.adapters.first import first_adapter  # noqa: E402
from fedse.adapters.plan import PERSONAL, RESIDUAL, factor, in_part  # noqa: E402
from fedse.errors import BadInput  # noqa: E402
from fedse.learners.imitation import Imitation  # noqa: E402
from fedse.models.tiny import Tiny  # noqa: E402
from fedse.networks.decoding.probe import probe_gap  # noqa: E402
from fedse.networks.swap import load_adapter  # noqa: E402
from fedse.policies.transformer import TransformerPolicy  # noqa: E402
from fedse.starts.demonstrations import Demonstrations  # noqa: E402
from fedse.types import Adapter, Lesson  # noqa: E402
from fedse.worlds.maze import Maze  # noqa: E402

SCALES: list[tuple[dict[str, Any], float]] = [
    ({}, 16 / 8),
    ({"scaling": "sqrt_rank"}, 16 / math.sqrt(8)),
    ({"clients": 5}, 16 / 8 * math.sqrt(5)),
    ({"scaling": "sqrt_rank", "clients": 5}, 16 * math.sqrt(5 / 8)),
]


def model(**lora: Any) -> Tiny:
    return Tiny(width=32, layers=1, device="cpu", context=2048, threads=1, lora=lora)


def drawn(start: Adapter, **ranks: int) -> Adapter:
    random = np.random.default_rng(1)
    shapes = {name: tensor.shape for name, tensor in start.tensors.items()}
    for other, rank in ranks.items():
        for name, shape in start.layout:
            shapes[in_part(name, other)] = (rank, shape[1]) if factor(name) == "A" else (shape[0], rank)
    tensors = {name: (0.2 * random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    return Adapter(tensors, start.config)


def logits(network: Any) -> Any:
    with torch.no_grad():
        return network(input_ids=torch.tensor([list(b"Thought: here is some text.")]), use_cache=False).logits


@pytest.mark.parametrize(("lora", "scale"), SCALES)
def test_the_product_is_multiplied_by_what_the_options_say(lora: dict[str, Any], scale: float) -> None:
    """The same network answers alike when the factor is put into B and PEFT's own is 1."""
    scaled, plain = model(**lora), model(alpha=8)
    adapter = drawn(scaled.initial_adapter(0))
    load_adapter(scaled.network, adapter)
    by_hand = {n: tensor * np.float32(scale) if factor(n) == "B" else tensor for n, tensor in adapter.tensors.items()}
    load_adapter(plain.network, Adapter(by_hand, plain.initial_adapter(0).config))
    torch.testing.assert_close(logits(scaled.network), logits(plain.network), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("ranks", [{}, {RESIDUAL: 5}, {RESIDUAL: 5, PERSONAL: 3}], ids=str)
@pytest.mark.parametrize("lora", [lora for lora, _ in SCALES[1:]], ids=str)
def test_plain_peft_gives_what_our_network_gives(lora: dict[str, Any], ranks: dict[str, int], tmp_path: Path) -> None:
    own = model(**lora)
    adapter = drawn(own.initial_adapter(0), **ranks)
    write_adapter(adapter, tmp_path)
    back = read_adapter(tmp_path)
    assert back.digest() == adapter.digest() and back.config == adapter.config
    base, _ = Tiny(width=32, layers=1, device="cpu").load(torch.float32)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path).eval()
    policy = TransformerPolicy(own, slots=4)
    policy.load(adapter)
    assert probe_gap(policy.model, policy._decoder) < 1e-4
    torch.testing.assert_close(logits(loaded), logits(own.network), atol=1e-4, rtol=1e-4)


def test_what_is_learned_depends_on_the_scale() -> None:
    """Adam's first steps are as long whatever the scale, so that what the products do grows with it."""
    world, losses = Maze(rules="brief", observation_length="brief"), []
    for lora in ({}, {"clients": 25}):
        own = model(**lora)
        shown = Demonstrations(4).trajectories("maze", "maze", world, own.chat, 0)
        learner = Imitation(own, epochs=2, batch_size=2, learning_rate=1e-3)
        _, metrics = learner.learn(Lesson(own.initial_adapter(0), shown, 1))
        losses.append((metrics["first_loss"], metrics["loss"]))
    assert losses[1][1] < losses[0][1]


def test_the_usual_configuration_is_what_it_was() -> None:
    config = model().initial_adapter(0).config
    assert config["lora_alpha"] == 16 and isinstance(config["lora_alpha"], int) and config["use_rslora"] is False


def test_an_adapter_of_another_scale_is_refused_as_a_beginning(tmp_path: Path) -> None:
    write_adapter(model(clients=5).initial_adapter(0), tmp_path)
    with pytest.raises(BadInput, match=r"has lora_alpha 35\.77.*the same tensors would have another effect"):
        first_adapter(tmp_path, model().initial_adapter(0))
