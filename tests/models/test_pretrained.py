"""Options of a pre-trained model, on real folders: each changes what it says, and what cannot work is refused by name."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedse.errors import BadInput, MissingExtra
from fedse.learners.imitation import Imitation
from fedse.models.huggingface import HuggingFace
from fedse.models.tiny import Tiny
from fedse.networks.decoding.probe import probe_gap
from fedse.networks.swap import load_adapter, log_probabilities
from fedse.policies.transformer import TransformerPolicy
from fedse.starts.demonstrations import demonstrate
from fedse.types import Adapter, Lesson, Sampling, Trajectory
from fedse.worlds.maze import Maze

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

APPENDING = (
    "{% for message in messages %}<|{{ 'user' if message['role'] == 'user' else 'agent' }}|>={{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|agent|>={% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as anybody would have it on disk."""
    made = Tiny(width=64, layers=2, device="cpu", threads=1)
    target = tmp_path_factory.mktemp("model")
    made.network.unload().save_pretrained(target)
    made.tokenizer.save_pretrained(target)
    return target


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Callable[[Callable[[Path], Any]], Path]:
    """A copy of the folder with something done to it."""

    def make(change: Callable[[Path], Any]) -> Path:
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        change(copy)
        return copy

    return make


def model(folder: Path, **options: Any) -> Any:
    return HuggingFace(path=str(folder), **{"threads": 1, **options})


def stirred(adapter: Adapter) -> Adapter:
    """Not zero anywhere, so that the adapter counts."""
    random = np.random.default_rng(0)
    noise = {name: random.normal(0, 0.02, tensor.shape) for name, tensor in adapter.tensors.items()}
    return Adapter({name: (adapter.tensors[name] + noise[name]).astype(np.float32) for name in noise}, adapter.config)


def replies(made: Any, adapter: Adapter) -> list[tuple[int, ...]]:
    """Two conversations of different lengths side by side, two turns each."""
    policy = TransformerPolicy(made, slots=3, reply_tokens=6)
    policy.load(adapter)
    slots = [policy.open(made.chat.opening("rules" * length), Sampling(length, 0.7)) for length in (1, 9)]
    said: dict[int, list[tuple[int, ...]]] = {slot: [] for slot in slots}
    for observation in ("left or right?", "and now?"):
        for slot in slots:
            policy.extend(slot, made.chat.turn(observation))
        waiting = set(slots)
        while waiting:
            for reply in policy.ready():
                said[reply.slot].append(reply.ids)
                waiting.remove(reply.slot)
    return [ids for slot in slots for ids in said[slot]]


def played(chat: Any) -> list[Trajectory]:
    world = Maze(rules="brief", observation_length="brief", turn_limit=4)
    return [
        demonstrate("client", "maze", world, task, chat, lambda world: world.expert())
        for task in world.tasks("train")[:4]
    ]


def test_eager_attention_gives_the_replies_of_sdpa(folder: Path) -> None:
    usual, eager = model(folder, device="cpu"), model(folder, device="cpu", attention="eager")
    assert eager.network.config._attn_implementation == "eager"
    adapter = stirred(usual.initial_adapter(0))
    assert replies(eager, adapter) == replies(usual, adapter)
    policy = TransformerPolicy(eager, slots=2)
    policy.load(adapter)
    assert probe_gap(policy.model, policy._decoder) < 1e-5


@pytest.mark.parametrize("name", ["flash_attention_2", "flash_attention_3", "flex_attention", "paged|eager"])
def test_attention_without_a_mask_for_each_conversation_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        HuggingFace.Options(path="x", attention=name)
    assert f"'{name}' cannot hold conversations of different lengths" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("device_map", ["auto", {"": "cpu"}])
def test_a_device_map_changes_where_and_not_what(folder: Path, device_map: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("compares with a CPU, and here 'auto' is a GPU")
    mapped = model(folder, device_map=device_map)
    usual = model(folder, device="cpu")
    adapter = stirred(usual.initial_adapter(0))
    assert replies(mapped, adapter) == replies(usual, adapter)
    learned = [Imitation(made, epochs=1).learn(Lesson(adapter, played(made.chat), 0))[0] for made in (mapped, usual)]
    assert learned[0].digest() == learned[1].digest() != adapter.digest()


@pytest.mark.gpu
def test_layers_on_two_devices_answer_and_learn(folder: Path) -> None:
    from accelerate import dispatch_model

    usual, spread = model(folder, device="cpu"), model(folder, device="cpu")
    llama = spread.network.base_model.model
    places = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cuda:0", "lm_head": "cuda:0"}
    dispatch_model(llama, {**places, "model.layers.0": "cpu", "model.layers.1": "cuda:0"}, main_device="cpu")
    adapter = stirred(usual.initial_adapter(0))
    assert replies(spread, adapter) == replies(usual, adapter)
    assert {str(parameter.device) for parameter in spread.network.parameters()} == {"cpu", "cuda:0"}
    learned = [Imitation(made, epochs=1).learn(Lesson(adapter, played(made.chat), 0))[0] for made in (spread, usual)]
    for name, tensor in learned[1].tensors.items():
        np.testing.assert_allclose(learned[0].tensors[name], tensor, atol=1e-5)


def test_a_model_that_would_lie_on_the_disk_is_refused(folder: Path) -> None:
    rest = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.norm": "cpu", "lm_head": "cpu"}
    with pytest.raises(BadInput, match=r"model\.device_map: part of the model would lie on the disk"):
        model(folder, device_map={**rest, "model.rotary_emb": "cpu", "model.layers.1": "disk"})


def test_device_and_device_map_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="device and device_map both say where the model goes"):
        HuggingFace.Options(path="x", device="cpu", device_map="auto")


@pytest.mark.parametrize("wrong", ["fancy", 3, {"model": 1.5}, ["auto"]])
def test_a_device_map_that_is_none_is_one_clear_error(wrong: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        HuggingFace.Options(path="x", device_map=wrong)
    [problem] = caught.value.errors()
    assert "expected auto, balanced, balanced_low_0, sequential, or a mapping" in problem["msg"]


def test_a_device_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.device: cannot put the model on 'cuda:77'"):
        model(folder, device="cuda:77")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("quantization", ["8bit", "4bit"])
def test_a_rounded_base_answers_learns_and_is_merged_at_full_precision(
    folder: Path, tmp_path: Path, quantization: str, device: str
) -> None:
    pytest.importorskip("bitsandbytes", reason="pip install -e '.[quantized]'")
    usual, rounded = model(folder, device=device), model(folder, device=device, quantization=quantization)
    assert type(rounded.network.base_model.model.model.layers[0].mlp.up_proj).__module__ == "peft.tuners.lora.bnb"
    adapter = stirred(usual.initial_adapter(0))
    assert rounded.initial_adapter(0).digest() == usual.initial_adapter(0).digest()
    policy = TransformerPolicy(rounded, slots=3, reply_tokens=4)
    policy.load(adapter)  # Proves that decoding and a plain pass agree.
    load_adapter(usual.network, adapter)
    ids = usual.chat.opening("rules") + usual.chat.turn("go")
    gap = (log_probabilities(rounded.network, ids) - log_probabilities(usual.network, ids)).abs().mean()
    assert 0 < float(gap) < 0.5

    learner = Imitation(rounded, epochs=4, learning_rate=5e-3)
    learned, metrics = learner.learn(Lesson(adapter, played(rounded.chat), 0))
    assert metrics["loss"] < metrics["first_loss"] - 0.05
    assert all(tensor.dtype == np.float32 for tensor in learned.tensors.values())

    rounded.save_merged(learned, tmp_path / "rounded")
    usual.save_merged(learned, tmp_path / "usual")
    merged = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("rounded", "usual")]
    assert merged[0] == merged[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("quantization", ["8bit", "4bit"])
def test_a_rounded_base_learns_the_same_whether_it_answered_before_or_not(
    folder: Path, quantization: str, device: str
) -> None:
    """bitsandbytes can repack weights for answering so that gradients no longer pass through them."""
    pytest.importorskip("bitsandbytes", reason="pip install -e '.[quantized]'")
    fresh, used = (model(folder, device=device, quantization=quantization) for _ in range(2))
    adapter = stirred(fresh.initial_adapter(0))
    replies(used, adapter)
    learned = [Imitation(made, epochs=1).learn(Lesson(adapter, played(made.chat), 0))[0] for made in (fresh, used)]
    for name, tensor in learned[0].tensors.items():
        np.testing.assert_allclose(learned[1].tensors[name], tensor, atol=1e-6)


def test_a_rounded_base_without_the_library_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(folder, device="cpu")
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingExtra, match=r"needs the library bitsandbytes.*'\.\[quantized\]'"):
        model(folder, device="cpu", quantization="4bit")


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        # As with a folder called `triton` where the command is given: transformers' own error then names no library.
        ("raise ModuleNotFoundError('no module') from AttributeError('no language')", "AttributeError: no language"),
        # As with two libraries whose versions do not go together.
        ("from json import nothing", "ImportError: cannot import name 'nothing' from 'json'"),
        # As with a library of CUDA's that is missing.
        ("raise OSError('libcudart.so.12: cannot open')", "OSError: libcudart.so.12: cannot open"),
    ],
)
def test_libraries_that_are_there_but_broken_are_not_called_missing(
    content: str, cause: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "peft.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "peft")
    with pytest.raises(BadInput, match=re.escape(f"cannot be imported ({cause}")):
        model(folder, device="cpu")


@pytest.mark.parametrize("library", ["peft", "torch"])
def test_libraries_that_are_not_there_are_called_missing(
    library: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=rf"needs the library {library}, which is not installed.*'\.\[model\]'"):
        model(folder, device="cpu")


def test_a_chat_template_of_ones_own_is_used_and_kept(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text(APPENDING)
    usual = model(folder, device="cpu")
    own = model(folder, device="cpu", chat_template=tmp_path / "mine.jinja")
    assert own.tokenizer.decode(own.chat.turn("seen")) == "<|user|>=seen<|end|><|agent|>="
    assert own.chat.fingerprint != usual.chat.fingerprint
    own.save_merged(own.initial_adapter(0), tmp_path / "merged")
    assert (tmp_path / "merged" / "chat_template.jinja").read_text() == APPENDING


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_chat_template_that_cannot_be_read_is_named(folder: Path, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "mine.jinja"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match=r"model\.chat_template: cannot read .*mine\.jinja"):
        model(folder, device="cpu", chat_template=file)


def _without(*names: str) -> Callable[[Path], Any]:
    return lambda folder: [(folder / name).unlink() for name in names]


def _written(name: str, content: bytes) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(content)


def _configured(**values: Any) -> Callable[[Path], Any]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))

    return change


def _cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])


def _encoder(folder: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertForMaskedLM(config).save_pretrained(folder)


_REMOTE = {"AutoConfig": "configuration_zork.ZorkConfig", "AutoModelForCausalLM": "modeling_zork.Zork"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without("tokenizer.json", "tokenizer_config.json"), "holds no tokenizer that can be read"),
        (_written("tokenizer.json", b"{"), "holds no tokenizer that can be read"),
        (_without("chat_template.jinja"), "has no chat template: .* `model.chat_template`"),
        (_without("config.json"), "has no configuration that can be used"),
        (_written("config.json", b"{"), "has no configuration that can be used"),
        (_configured(model_type="zork", architectures=["Zork"]), "has no configuration that can be used"),
        (_configured(model_type="zork", auto_map=_REMOTE), "code that comes with a model is never run"),
        (_encoder, "holds a BertForMaskedLM, which is not a causal language model"),
        (_configured(architectures=["LlamaModel"]), "holds a LlamaModel, which is not a causal language model"),
        (_without("model.safetensors"), "cannot load the weights"),
        (_cut, "cannot load the weights .*incomplete"),
        (_written("model.safetensors", b""), "cannot load the weights"),
        (_configured(hidden_size=128), "cannot load the weights"),
        (_configured(num_hidden_layers=3), r"lacks 9 of the model's tensors \(such as model.layers.2"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_sentence(
    changed: Callable[[Callable[[Path], Any]], Path], change: Callable[[Path], Any], said: str
) -> None:
    copy = changed(change)
    with pytest.raises(BadInput, match=said) as caught:
        model(copy, device="cpu")
    assert str(copy) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
