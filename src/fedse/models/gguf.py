"""A GGUF file, llama.cpp's format, turned into a folder in Hugging Face's format, which loads in a fraction of the time."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedse.errors import MissingExtra

_NEEDED = {"torch": "model", "transformers": "model", "accelerate": "model", "gguf": "smollm2"}


def check_libraries() -> None:
    """Raise `MissingExtra` for the first library that `convert` lacks."""
    for library, extra in _NEEDED.items():
        if find_spec(library) is None:
            raise MissingExtra("converting a GGUF file", library, extra)


def convert(file: Path, folder: Path) -> None:
    """Write weights, tokenizer and chat template of the GGUF file into the folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # The bars that the libraries draw would cross the one our caller shows.
    with redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        _split_digits(tokenizer, file)
        network = _dense(loaded)
        # Half the size of float32, and nearer to what the file says than bfloat16: its scales are float16 themselves.
        network.to(torch.float16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _dense(loaded: Any) -> Any:
    """The same network without the mark "quantised", with which transformers refuses to save or cast it."""
    config = loaded.config
    del config.quantization_config
    network = type(loaded)(config)
    network.load_state_dict(loaded.state_dict())
    return network


def _split_digits(tokenizer: Any, file: Path) -> None:
    """Give each digit a token of its own where the file asks for it; transformers does not know this kind of tokenizer.

    Without it two spaces before a digit become other tokens than those the model was trained on.
    """
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    field = GGUFReader(file).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
