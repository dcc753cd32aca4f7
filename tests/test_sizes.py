"""`benchmarks/shapes.py` has the published sizes, and `benchmarks/sizes.py` makes its tables from what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = Path(__file__).parents[1] / "docs/models.md"


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
    page = PAGE.read_text().partition("### Which networks are fast")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| (yes|no) \|", page, re.MULTILINE)
    told = {name: answer == "yes" for names, answer in rows for name in names.strip().split(", ")}
    assert {name: told[name] for name in benchmarks("shapes").SHAPES} == {
        name: name in FAST for name in benchmarks("shapes").SHAPES
    }


@pytest.mark.slow
def test_what_a_step_reads_and_a_token_costs_is_as_by_hand(benchmarks: Any) -> None:
    from types import SimpleNamespace

    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    def made(name: str) -> Any:
        with torch.device("meta"):
            base = AutoModelForCausalLM.from_config(benchmarks("shapes").SHAPES[name].config, dtype=torch.bfloat16)
            return SimpleNamespace(network=get_peft_model(base, LoraConfig(r=8, target_modules="all-linear")))

    qwen = made("Qwen2.5-7B")
    read = benchmarks("one_size").read_by_a_step(qwen, slots=256, context=600)
    widths = (3584 + 3584) + 2 * (3584 + 512) + (3584 + 3584) + 3 * (3584 + 18_944)
    weights, adapter, embedding = 2 * 7_615_616_512, 28 * 8 * widths, 2 * 152_064 * 3584
    kept = 2 * 28 * 4 * 128 * 2
    assert read["weights"] == weights and read["kept"] == kept
    assert read["step"] == weights + 2 * adapter - embedding + 256 * 600 * kept
    # All but two matrices of the vocabulary's size and the last norm.
    frozen = 7_615_616_512 - 2 * 152_064 * 3584 - 3584
    assert benchmarks("learning").dense_operations(qwen) == 4 * frozen + 6 * adapter

    # The embedding is the head and is read; every sixth layer sees more than 512 tokens.
    read = benchmarks("one_size").read_by_a_step(made("Gemma-3-1B"), slots=256, context=600)
    widths = 2 * (1152 + 1024) + 2 * (1152 + 256) + 3 * (1152 + 6912)
    seen = 256 * (22 * 512 + 4 * 600) * 2 * 256 * 2
    assert read["step"] == 2 * 999_885_952 + 2 * 26 * 8 * widths + seen


def test_hours_are_tokens_divided_by_speeds(benchmarks: Any) -> None:
    sizes = benchmarks("sizes")
    one: dict[str, Any] = {
        "weights_gib": 14.2,
        "kept_kib_per_token": 56.0,
        "decoder": "GraphedDecoder",
        "pass": "PackedPass",
        "sampled_per_second": 1_570,
        "share_of_limit": 0.5,
        "prefilled_per_second": 2_230,
        "generate_sampled_per_second": 157,
        "generate_prefilled_per_second": 2_000,
        "gib_to_play": 40.0,
    }
    assert "Learning" not in "".join(sizes.tables({"Qwen2.5-7B": one})), "it was not measured"
    one |= {"learned_per_second": 28_500, "share_of_matrix_rate": 0.4, "trainer_learned_per_second": 14_250}
    one |= {"gib_to_learn": 60.0, "trainer_gib": 120.0, "trainer_rows": 4, "share_of_matrix_rate_computed": 0.31}
    one |= {"static_error": "RuntimeError: it is too small"}
    _, played, learned, protocol, failed = sizes.tables(
        {"Qwen2.5-7B": one, "Phi-4-mini": {"error": "ended with code 1"}}
    )
    assert "| Qwen2.5-7B | 1,570 | 50% | 157 | 10.0 |" in played
    assert "| Qwen2.5-7B | 28,500 | 40% | 31% | 14,250 | 2.0 |" in learned
    assert "| Qwen2.5-7B | static | RuntimeError: it is too small |" in failed
    assert "| Phi-4-mini | error | ended with code 1 |" in failed
    # A thousand seconds each; with 6,284 demonstrations learning takes 4,175.
    assert "| Qwen2.5-7B | 0.83 | 1.72 |" in protocol


def test_a_part_that_fails_is_named_and_the_others_go_on(benchmarks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    one_size = benchmarks("one_size")

    def full(*_: Any) -> Iterator[dict[str, Any]]:
        yield {"sampled_per_second": 3}
        raise torch.OutOfMemoryError("the card is full\nand more")

    def learned(*_: Any) -> Iterator[dict[str, Any]]:
        yield {"learned_per_second": 4}

    monkeypatch.setattr(one_size, "PARTS", {"playing": full, "learning": learned})
    model, given = SimpleNamespace(device="cpu"), SimpleNamespace(parts=["playing", "learning"])
    found = {key: value for part in one_size.measured(model, given) for key, value in part.items()}
    assert found["sampled_per_second"] == 3 and found["learned_per_second"] == 4
    assert found["playing_error"] == "OutOfMemoryError: the card is full"
