"""`benchmarks/shapes.py` has the published sizes, and `benchmarks/sizes.py` makes its tables from what was measured."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    known = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield module
    for name in set(sys.modules) - known:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


def test_a_shape_has_as_many_parameters_as_its_model(benchmarks: Any) -> None:
    from transformers import AutoModelForCausalLM

    def counted(shape: Any, layers: int) -> int:
        with torch.device("meta"):
            shorter = replace(shape, size={**shape.size, "num_hidden_layers": layers})
            network = AutoModelForCausalLM.from_config(shorter.config)
        return sum(parameter.numel() for parameter in network.parameters())

    shapes = benchmarks("shapes").SHAPES
    assert len(shapes) == 11
    for shape in shapes.values():
        one, two = counted(shape, 1), counted(shape, 2)
        assert one + (shape.size["num_hidden_layers"] - 1) * (two - one) == shape.parameters


SMALL = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
FAST = {"SmolLM2-135M", "Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen3-1.7B", "Qwen3-4B", "Qwen3-8B"}
FAST |= {"Llama-3.2-1B", "Llama-3.1-8B"}


def test_the_page_about_models_says_which_family_has_fast_paths(benchmarks: Any) -> None:
    """With heads as they are and everything else small; that the paths compute what transformers does, other tests say."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from fedse.networks.decoding.graphed_network import GraphedNetwork
    from fedse.networks.training.packed_llama import PackedLlama

    fast = set()
    for name, shape in benchmarks("shapes").SHAPES.items():
        own = shape.size
        head = own.get("head_dim") or own["hidden_size"] // own["num_attention_heads"]
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        size = {**own, **SMALL, **heads, **({} if shape.family == "Phi3" else {"head_dim": head})}
        size |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
        network = AutoModelForCausalLM.from_config(replace(shape, size=size).config, attn_implementation="sdpa")
        adapted = get_peft_model(network, LoraConfig(r=2, target_modules="all-linear"))
        assert GraphedNetwork.knows(adapted) == PackedLlama.suits(adapted)
        if PackedLlama.suits(adapted):
            fast.add(name)
    assert fast == FAST
    page = (
        (BENCHMARKS.parent / "docs/models.md")
        .read_text()
        .partition("### Which networks are fast")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"^\| ([^|]+) \| (yes|no) \|", page, re.MULTILINE)
    told = {name: answer == "yes" for names, answer in rows for name in names.strip().split(", ")}
    assert {name: told[name] for name in benchmarks("shapes").SHAPES} == {
        name: name in FAST for name in benchmarks("shapes").SHAPES
    }


def test_hours_are_tokens_divided_by_speeds(benchmarks: Any) -> None:
    sizes = benchmarks("sizes")
    one: dict[str, Any] = {
        "weights_gib": 14.2,
        "kept_kib_per_token": 56.0,
        "decoder": "GraphedDecoder",
        "pass": "RecordedPass",
        "sampled_per_second": 1_570,
        "share_of_limit": 0.5,
        "prefilled_per_second": 2_230,
        "generate_sampled_per_second": 157,
        "generate_prefilled_per_second": 2_000,
        "gib_to_play": 40.0,
    }
    assert "Learning" not in "".join(sizes.tables({"Qwen2.5-7B": one})), "it was not measured"
    one |= {"learned_per_second": 28_500, "share_of_matrix_rate": 0.4, "trainer_learned_per_second": 14_250}
    one |= {"gib_to_learn": 60.0, "trainer_gib": 120.0}
    _, played, learned, protocol = sizes.tables({"Qwen2.5-7B": one})
    assert "| Qwen2.5-7B | 1,570 | 50% | 157 | 10.0 |" in played
    assert "| Qwen2.5-7B | 28,500 | 40% | 14,250 | 2.0 |" in learned
    # A thousand seconds each; with 6,284 demonstrations learning takes 4,175.
    assert "| Qwen2.5-7B | 0.83 | 1.72 |" in protocol
