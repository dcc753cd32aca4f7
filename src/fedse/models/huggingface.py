"""Any causal language model in Hugging Face's format, from a local folder or a name on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedse.models.card import BRING_YOUR_OWN
from fedse.models.pretrained import Pretrained, PretrainedOptions


class HuggingFace(Pretrained):
    """A pre-trained model with its tokenizer and chat template."""

    card = BRING_YOUR_OWN

    class Options(PretrainedOptions):
        path: str
        """A folder, or a name on the hub such as Qwen/Qwen2.5-0.5B-Instruct."""
        revision: str | None = None
        """Branch, tag or commit of a model on the hub; a commit makes sure that everybody has the same weights."""

    def __init__(self, path: str, revision: str | None = None, **options: Any) -> None:
        self.name = str(Path(path).expanduser()) if path.startswith("~") else path
        self.revision = revision
        super().__init__(path=path, revision=revision, **options)

    def folder(self) -> str:
        return self.name
