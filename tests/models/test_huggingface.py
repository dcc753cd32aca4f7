from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from fedse.adapters.files import write_adapter
from fedse.errors import BadInput, UnknownName
from fedse.models.huggingface import HuggingFace
from fedse.models.tiny import Tiny
from fedse.networks.decoding.probe import probe_gap
from fedse.networks.swap import log_probabilities
from fedse.plugins import resolve
from fedse.policies.transformer import TransformerPolicy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as anybody would have it on disk."""
    made = Tiny(width=32, layers=1, device="cpu")
    target = tmp_path_factory.mktemp("model")
    made.network.unload().save_pretrained(target)
    made.tokenizer.save_pretrained(target)
    return target


def test_a_model_from_a_folder_answers_like_the_one_that_was_saved(folder: Path) -> None:
    saved: Any = Tiny(width=32, layers=1, device="cpu")
    loaded: Any = HuggingFace(path=str(folder), device="cpu")
    assert loaded.chat.opening("rules") == saved.chat.opening("rules")
    assert loaded.initial_adapter(3).digest() == saved.initial_adapter(3).digest()
    ids = saved.chat.opening("rules") + saved.chat.turn("go")
    assert torch.equal(log_probabilities(loaded.network, ids), log_probabilities(saved.network, ids))
    policy = TransformerPolicy(loaded, slots=2)
    policy.load(loaded.initial_adapter(0))
    assert probe_gap(policy.model, policy._decoder) < 1e-5


def test_lora_settings_reach_the_model(folder: Path) -> None:
    model = HuggingFace(path=str(folder), device="cpu", lora={"rank": 3, "alpha": 6, "targets": ["q_proj", "v_proj"]})
    adapter = model.initial_adapter(0)
    assert {name.split(".")[-3] for name in adapter.tensors} == {"q_proj", "v_proj"}
    assert {tensor.shape[0] for name, tensor in adapter.tensors.items() if ".lora_A." in name} == {3}
    assert (adapter.config["r"], adapter.config["lora_alpha"]) == (3, 6)


def test_targets_that_the_model_does_not_have_are_named(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.lora\.targets"):
        HuggingFace(path=str(folder), device="cpu", lora={"targets": ["no_such_layer"]})


def test_layers_with_no_attention_are_refused_by_name(folder: Path) -> None:
    model: Any = HuggingFace(path=str(folder), device="cpu")
    model.network.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(
        BadInput, match="linear attention, and the transformer policy knows full and sliding attention only"
    ):
        TransformerPolicy(model, slots=2)


def test_a_window_as_wide_as_the_context_is_full_attention(folder: Path, tmp_path: Path) -> None:
    """As Phi-4-mini has it."""
    from transformers import AutoTokenizer, Phi3Config, Phi3ForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = Phi3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=512, sliding_window=1024, pad_token_id=0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    Phi3ForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = HuggingFace(path=str(tmp_path), device="cpu")
    policy = TransformerPolicy(model, slots=2)
    policy.load(model.initial_adapter(0))
    assert probe_gap(policy.model, policy._decoder) < 1e-5


def test_a_folder_without_a_model_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no configuration that can be used"):
        HuggingFace(path=str(tmp_path), device="cpu")


@pytest.mark.parametrize("path", ["./not_there", "/not/there", "a/b/c", "not_there"])
def test_a_folder_that_is_not_there_is_a_clear_error(path: str) -> None:
    with pytest.raises(BadInput, match=f"there is no folder '{path}'"):
        HuggingFace(path=path, device="cpu")


def test_a_folder_in_the_home_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    model = HuggingFace(path=f"~/{folder.name}", device="cpu")
    assert model.initial_adapter(0).config["base_model_name_or_path"] == str(folder)


def test_a_folder_has_no_revisions(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.revision: .* is a folder"):
        HuggingFace(path=str(folder), revision="main", device="cpu")


def test_the_name_of_a_folder_alone_is_answered_with_how_to_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_llama").mkdir()
    with pytest.raises(UnknownName, match=r"for the folder of this name write '\./my_llama'"):
        resolve("model", "my_llama")
    with pytest.raises(UnknownName) as caught:
        resolve("world", "my_llama")
    assert "./my_llama" not in str(caught.value)


class Hub:
    """A server that answers every question about a model with one status, or only listens."""

    def __init__(self, status: int = 0, code: str = "") -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.answers = bool(status)
        if self.answers:
            threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        if self.answers:
            # Otherwise its thread goes on asking for the closed socket, as often as it can.
            self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    opened = []

    def use(*answer: Any) -> None:
        opened.append(Hub(*answer))
        monkeypatch.setattr(constants, "ENDPOINT", opened[-1].address)

    yield use
    for one in opened:
        one.close()


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (404, "RepoNotFound", "no model of this name on the hub"),
        (401, "RepoNotFound", "no model of this name on the hub"),
        (404, "RevisionNotFound", r"model\.revision: 'acme/tiny' has no revision 'v7'"),
        (403, "GatedRepo", "those who accepted its terms"),
        (503, "", r"the hub cannot be asked for it \(.*503.*hf download acme/tiny"),
    ],
)
def test_what_the_hub_says_is_told_in_one_sentence(hub: Callable[..., None], status: int, code: str, said: str) -> None:
    hub(status, code)
    with pytest.raises(BadInput, match=said) as caught:
        HuggingFace(path="acme/tiny", revision="v7", device="cpu")
    assert len(str(caught.value).splitlines()) == 1


def test_a_hub_that_never_answers_is_not_waited_for(hub: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    hub()
    monkeypatch.setattr("fedse.models.hub._SECONDS", 0.5)
    began = time.monotonic()
    with pytest.raises(BadInput, match="the hub cannot be asked for it"):
        HuggingFace(path="acme/tiny", device="cpu")
    assert time.monotonic() - began < 5


def test_a_model_downloaded_before_needs_no_hub_and_revisions_are_kept_apart(
    hub: Callable[..., None], folder: Path, tmp_path: Path
) -> None:
    hub(503, "")
    cached = tmp_path / "hub" / "models--acme--tiny"
    shutil.copytree(folder, cached / "snapshots" / ("a" * 40))
    (cached / "refs").mkdir()
    (cached / "refs" / "v1").write_text("a" * 40)
    model: Any = HuggingFace(path="acme/tiny", revision="v1", device="cpu")
    adapter = model.initial_adapter(0)
    write_adapter(adapter, tmp_path)
    exported = peft.PeftConfig.from_pretrained(str(tmp_path))
    assert (exported.base_model_name_or_path, exported.revision) == ("acme/tiny", "v1")
    HuggingFace(path="acme/tiny", revision="a" * 40, device="cpu")
    with pytest.raises(BadInput, match="nor downloaded on this machine"):
        HuggingFace(path="acme/tiny", device="cpu")


@pytest.mark.slow
def test_a_run_without_a_connection_ends_soon_with_one_sentence_and_nothing_written(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("name: e\nrounds: 1\nmodel: Qwen/Qwen3-1.7B\nclients: {maze: {worlds: [maze]}}\n")
    # Port 9 of this machine: nobody listens there, whatever the network is like.
    surroundings = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "fedse", "run", "e.yaml"],
        cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 2
    [said] = [line for line in done.stderr.splitlines() if line.startswith("fedse: ")]
    assert "'Qwen/Qwen3-1.7B' is neither a folder nor downloaded on this machine" in said
    assert "hf download Qwen/Qwen3-1.7B" in said
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
