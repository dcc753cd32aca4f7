"""Any causal language model in Hugging Face's format, from a local folder or a name on the hub."""

from __future__ import annotations

from typing import Any

from fedse.errors import BadInput
from fedse.models.causal_lm import CausalLM, ModelOptions


class HuggingFace(CausalLM):
    """A pre-trained model with its tokenizer and chat template."""

    class Options(ModelOptions):
        path: str
        """A folder, or a name on the hub such as Qwen/Qwen2.5-0.5B-Instruct."""

    def __init__(self, path: str, **options: Any) -> None:
        self.name = path
        super().__init__(**options)

    def load(self, dtype: Any) -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.name)
            network = AutoModelForCausalLM.from_pretrained(self.name, dtype=dtype, attn_implementation="sdpa")
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise BadInput(
                f"model.path: cannot load '{self.name}' ({reason}). Give a folder that holds the model, or check the "
                "name and the connection to the hub."
            ) from error
        return network, tokenizer
