"""What a run leaves behind works without fedse: plain peft and transformers give the probabilities our own network gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fedse
from fedse.adapters.files import read_adapter
from fedse.cli import app
from fedse.experiments.options import Experiment
from fedse.models.huggingface import HuggingFace
from fedse.models.tiny import byte_tokenizer
from fedse.networks.swap import load_adapter

TOLERANCE = 1e-5


def save_llama(folder: Path, tied: bool) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=tied,
        initializer_range=0.2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A base model and one federated round on it."""
    place = tmp_path_factory.mktemp("elsewhere")
    base = place / "base"
    save_llama(base, tied=request.param)
    world = {"name": "maze", "rules": "brief", "observation_length": "brief", "turn_limit": 4}
    experiment = Experiment.model_validate(
        {
            "name": "run",
            "rounds": 1,
            "model": {"name": "huggingface", "path": str(base), "device": "cpu", "threads": 1},
            "clients": {"east": {"worlds": [world]}, "west": {"worlds": [world]}},
            "start": {"tasks": 4},
            "exploration": {"tasks": 1},
            "evaluation": {"tasks": 1, "test_tasks": 1},
            "learner": {"learning_rate": 1e-2, "batch_size": 4},
            "policy": {"slots": 4, "reply_tokens": 4},
        }
    )
    return base, fedse.run(experiment, runs=place).folder


def ours(base: Path, adapter: Path) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Ids of a conversation, and the logits of our network with the adapter and with the initial one."""
    model = HuggingFace(path=str(base), device="cpu", threads=1)
    ids = torch.tensor([model.chat.opening("rules") + model.chat.turn("left or right?")])
    found = []
    for chosen in (read_adapter(adapter), model.initial_adapter(0)):
        load_adapter(model.network, chosen)
        with torch.no_grad():
            found.append(model.network(ids).logits)
    return ids, found[0], found[1]


def test_the_adapter_of_a_round_loads_in_plain_peft(run: tuple[Path, Path]) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base, folder = run
    adapter = folder / "rounds" / "0001" / "adapter"
    ids, trained, untrained = ours(base, adapter)
    assert (trained - untrained).abs().max() > 100 * TOLERANCE
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, trained, atol=TOLERANCE, rtol=0)
    with torch.no_grad(), theirs.disable_adapter():
        torch.testing.assert_close(theirs(ids).logits, untrained, atol=TOLERANCE, rtol=0)


def test_an_exported_adapter_finds_its_base_by_itself(run: tuple[Path, Path], tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM

    base, folder = run
    done = CliRunner().invoke(app, ["export", str(folder), str(tmp_path / "adapter")])
    assert done.exit_code == 0, done.output
    ids, trained, _ = ours(base, folder / "rounds" / "0001" / "adapter")
    theirs = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, trained, atol=TOLERANCE, rtol=0)


def test_an_exported_merged_model_needs_transformers_alone(run: tuple[Path, Path], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, folder = run
    merged = tmp_path / "merged"
    done = CliRunner().invoke(app, ["export", str(folder), str(merged), "--what", "merged"])
    assert done.exit_code == 0, done.output
    ids, trained, _ = ours(base, folder / "rounds" / "0001" / "adapter")
    theirs = AutoModelForCausalLM.from_pretrained(merged)
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, trained, atol=10 * TOLERANCE, rtol=0)
    assert AutoTokenizer.from_pretrained(merged).chat_template == byte_tokenizer().chat_template
    assert not (merged / "adapter_config.json").exists()
