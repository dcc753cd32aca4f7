"""A base model is a folder in Hugging Face's format: causal language model, tokenizer, chat template."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from fedse.errors import BadInput, MissingExtra
from fedse.models.causal_lm import CausalLM, ModelOptions
from fedse.models.hub import Source, find
from fedse.plugins import FilePath
from fedse.types import Adapter

_RULES = ("auto", "balanced", "balanced_low_0", "sequential")
"""How accelerate can spread layers by itself."""


class PretrainedOptions(ModelOptions):
    """How a pre-trained model is loaded."""

    attention: str = "sdpa"
    """Attention implementation of transformers: "sdpa", or "eager" for models that have no other."""
    device_map: str | dict[str, int | str] | None = None
    """Spreads the layers over several GPUs, in place of `device`: "auto", "balanced", "balanced_low_0" or "sequential",
    or a mapping from modules to devices."""
    quantization: Literal["none", "8bit", "4bit"] = "none"
    """Rounds the frozen base with bitsandbytes to save memory; the adapter stays float32."""
    chat_template: FilePath | None = None
    """A file with a Jinja chat template to use in place of the tokenizer's own."""

    @field_validator("attention")
    @classmethod
    def _can_mask(cls, attention: str) -> str:
        if attention not in ("sdpa", "eager"):
            raise ValueError(
                f"'{attention}' cannot hold conversations of different lengths side by side, which needs a mask for each: "
                "use sdpa or eager"
            )
        return attention

    @field_validator("device_map", mode="before")
    @classmethod
    def _is_a_rule(cls, device_map: Any) -> Any:
        mapping = isinstance(device_map, dict) and all(type(place) in (int, str) for place in device_map.values())
        if not (mapping or device_map is None or device_map in _RULES):
            raise ValueError(f"expected {', '.join(_RULES)}, or a mapping such as {{model.layers.0: 1}}")
        return device_map

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.device_map is not None and self.device != "auto":
            raise ValueError("device and device_map both say where the model goes: give one of them")
        return self


class Pretrained(CausalLM):
    """A subclass says where the folder is by overriding `folder`."""

    Options: type[PretrainedOptions] = PretrainedOptions
    options: PretrainedOptions

    def folder(self) -> str:
        """A folder on this machine, or a name on the hub."""
        raise NotImplementedError

    def load(self, dtype: Any) -> tuple[Any, Any]:
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()
        source = find(self.folder(), self.revision)
        _check_architecture(source)
        tokenizer = self._tokenizer(source)
        return self._network(source, dtype), tokenizer

    def _tokenizer(self, source: Source) -> Any:
        from transformers import AutoTokenizer

        template = self.options.chat_template
        try:
            tokenizer = AutoTokenizer.from_pretrained(source.place, **source.settings)
        except Exception as error:  # Which exception a damaged or missing file raises depends on the tokenizer's kind.
            raise BadInput(
                f"model: '{source.place}' holds no tokenizer that can be read ({_first_line(error)}): put the files of the "
                "model's tokenizer (tokenizer.json, tokenizer_config.json) beside its weights."
            ) from error
        if template is not None:
            try:
                tokenizer.chat_template = template.expanduser().read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or _first_line(error)
                raise BadInput(
                    f"model.chat_template: cannot read {template} ({reason}): give a text file with a Jinja template."
                ) from error
        return tokenizer

    def _network(self, source: Source, dtype: Any) -> Any:
        from transformers import AutoModelForCausalLM

        quantization = self._quantization(dtype)
        try:
            network, told = AutoModelForCausalLM.from_pretrained(
                source.place,
                dtype=dtype,
                attn_implementation=self.options.attention,
                device_map=self._device_map(),
                quantization_config=quantization,
                output_loading_info=True,
                **source.settings,
            )
        except Exception as error:  # Its type depends on what is wrong: a file, a setting, a library, a device.
            if self.options.attention == "sdpa" and "scaled_dot_product" in str(error):
                raise BadInput(
                    f"model.attention: '{source.place}' computes attention in a way of its own, which sdpa cannot: set "
                    "`attention: eager`."
                ) from error
            raise BadInput(
                f"model: cannot load the weights of '{source.place}' ({_first_line(error)}): check that its files are "
                "complete, and that `attention`, `device_map` and `quantization` suit the model and this machine."
            ) from error
        if missing := sorted(told["missing_keys"]):
            raise BadInput(
                f"model: '{source.place}' lacks {len(missing)} of the model's tensors (such as {missing[0]}), which would "
                "be random: get the files again."
            )
        return network

    def _device_map(self) -> Any:
        if self.options.quantization != "none" and self.options.device_map is None:
            return {"": self.device}
        return self.options.device_map

    def _quantization(self, dtype: Any) -> Any:
        if self.options.quantization == "none":
            return None
        try:
            import bitsandbytes  # noqa: F401
        except ImportError as error:
            raise MissingExtra(
                f"model.quantization '{self.options.quantization}'", "bitsandbytes", "quantized"
            ) from error
        from transformers import BitsAndBytesConfig

        if self.options.quantization == "8bit":
            # It would say in every layer of every pass that inputs are rounded.
            logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
            # A threshold above 0 treats columns apart when any row of the batch has a large value in them: a reply would
            # depend on what is decoded beside it.
            return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )

    def place(self, base: Any) -> Any:
        """Weights that were spread or rounded while they were loaded stay where they are."""
        if self._device_map() is None:
            return super().place(base)
        places = {str(device) for device in getattr(base, "hf_device_map", {}).values()}
        if "disk" in places or ("cpu" in places and len(places) > 1):
            raise BadInput(
                "model.device_map: part of the model would lie on the disk or beside the GPU and be fetched for each pass, "
                "which learning cannot do: use more GPUs, `quantization` or a smaller model."
            )
        self.device = str(base.get_input_embeddings().weight.device)
        for module in base.modules():
            if hasattr(module, "support_avx512bf16_for_cpu"):
                # On CPUs with these instructions, answering would repack the 4-bit weights into a form without gradients.
                module.support_avx512bf16_for_cpu = False
        return base

    def save_merged(self, adapter: Adapter, folder: Path) -> None:
        """A rounded base is loaded once more at full precision: rounding again would lose part of the adapter."""
        if self.options.quantization == "none":
            super().save_merged(adapter, folder)
        else:
            type(self)(**{**self.options.model_dump(), "quantization": "none"}).save_merged(adapter, folder)


def _check_architecture(source: Source) -> None:
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    try:
        config = AutoConfig.from_pretrained(source.place, **source.settings)
    except Exception as error:
        raise BadInput(
            f"model: '{source.place}' has no configuration that can be used ({_first_line(error)}): give the folder of a "
            "causal language model in Hugging Face's format; code that comes with a model is never run."
        ) from error
    known = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type, ())
    known = {known} if isinstance(known, str) else set(known)
    held = set(config.architectures or known)
    if not held & known:
        raise BadInput(
            f"model: '{source.place}' holds a {', '.join(sorted(held)) or config.model_type}, which is not a causal "
            "language model that transformers knows: choose a model that generates text."
        )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__
