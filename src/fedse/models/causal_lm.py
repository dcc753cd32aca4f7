"""A frozen Hugging Face causal language model with one LoRA adapter that is overwritten again and again."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedse.adapters.plan import part
from fedse.errors import BadInput, MissingExtra, how_to_install
from fedse.models.chat import TemplateChat
from fedse.plugins import PluginOptions, read_options
from fedse.seeds import generator
from fedse.types import Adapter
from fedse.visible import short

if TYPE_CHECKING:
    import torch


class LoraOptions(PluginOptions):
    """The adapter every client trains. The defaults are the paper's."""

    rank: int = Field(default=8, ge=1)
    """Inner dimension of the two factors."""
    alpha: int = Field(default=16, ge=1)
    """Scale: the adapter's product is multiplied by alpha / rank, or as `scaling` and `clients` say."""
    scaling: Literal["rank", "sqrt_rank"] = "rank"
    """What alpha is divided by: the rank, or its square root, which keeps steps alike from rank to rank (rsLoRA, arXiv
    2312.03732)."""
    clients: int = Field(default=1, ge=1)
    """The scale is multiplied by the square root of this. With `scaling: sqrt_rank` and the number of sites it is
    alpha * sqrt(sites / rank), against what a mean of so many changes takes away (SFed-LoRA, arXiv 2603.08058)."""
    targets: str | list[str] = "all-linear"
    """Modules that get an adapter: "all-linear" (without the output layer), or names such as q_proj."""


class ModelOptions(PluginOptions):
    """Where and how a base model computes."""

    # Not `device`: with `dtype: auto` it also decides in which precision the base is held.
    rounding: ClassVar[frozenset[str]] = frozenset({"threads"})
    device: str = "auto"
    """"auto" takes a GPU when there is one; or cpu, cuda, cuda:1 and so on."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the frozen base; "auto" is bfloat16 on a GPU and float32 elsewhere. LoRA tensors are float32."""
    context: int | None = Field(default=None, ge=128)
    """Longest conversation in tokens, at most what the model can hold; null is all of that. The paper has 4,096."""
    lora: LoraOptions = LoraOptions()
    """The adapter that is trained and exchanged."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads of torch; a fixed number makes results on a CPU repeat bit for bit on the same machine."""


class CausalLM:
    """A subclass says where model and tokenizer come from by overriding `load`."""

    Options: type[ModelOptions] = ModelOptions
    options: ModelOptions
    name: str
    revision: str | None = None
    """Which version of a model on the hub; None is the newest."""
    only_here: ClassVar[bool] = False
    """Nobody else can load the base by its name, so that an exported adapter has to bring it along."""

    def __init__(self, **options: Any) -> None:
        try:
            import peft
            import torch
        except (ImportError, OSError) as error:  # The latter where a library of CUDA's cannot be loaded.
            if isinstance(error, ModuleNotFoundError) and error.name and not _is_there(error.name):
                raise MissingExtra("a language model", error.name, "model") from error
            raise BadInput(
                f"a language model needs torch and peft, which cannot be imported ({_first_cause(error)}): see whether "
                "a file or folder here is called like a library of theirs, or install them anew: "
                f"{how_to_install('model')}."
            ) from error
        self.options = read_options(self.Options, f"model {type(self).__name__}", options)
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        self.device = self._device()
        base, tokenizer = self.load(self._dtype(torch))
        base.requires_grad_(False)
        base.name_or_path = self.name
        self.context = self._context(base)
        self.chat = TemplateChat(tokenizer, self.name, _end_tokens(base))
        self.tokenizer = tokenizer
        lora = self.options.lora
        if lora.targets == "all-linear" and (fused := fused_experts(base)):
            raise BadInput(
                f'model.lora.targets: {self.name} keeps its experts in fused tensors (such as {fused}), which "all-linear" '
                "does not reach, so most of the model would learn nothing: name the layers that should learn, such as "
                f"`targets: [{', '.join(attention_layers(base))}]`."
            )
        config = peft.LoraConfig(
            r=lora.rank,
            # PEFT knows alpha alone, so that an exported adapter has the same scale wherever it is loaded.
            lora_alpha=lora.alpha if lora.clients == 1 else lora.alpha * math.sqrt(lora.clients),
            use_rslora=lora.scaling == "sqrt_rank",
            lora_dropout=0.0,
            target_modules=lora.targets,
            task_type="CAUSAL_LM",
            base_model_name_or_path=self.name,
            revision=self.revision,
        )
        try:
            self.network = peft.get_peft_model(self.place(base), config)
        except ValueError as error:
            raise BadInput(f"model.lora.targets: {error}") from error
        self._config = _plain(config.to_dict())
        self.network.eval()

    def _context(self, base: Any) -> int:
        own = getattr(base.config.get_text_config(), "max_position_embeddings", None)
        wanted = self.options.context
        if own is None and wanted is None:
            raise BadInput(f"model.context: {self.name} does not say how long a conversation may be: set it.")
        if own is not None and wanted is not None and wanted > own:
            raise BadInput(f"model.context: {self.name} holds {own} tokens, and {wanted} are asked for: set it lower.")
        return int(own if wanted is None else wanted)  # type: ignore[arg-type]

    def load(self, dtype: torch.dtype) -> tuple[Any, Any]:
        """The causal language model and its tokenizer, which has a chat template."""
        raise NotImplementedError

    def place(self, base: Any) -> Any:
        """The base where it computes."""
        try:
            return base.to(self.device)
        except (AssertionError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise BadInput(
                f"model.device: cannot put the model on '{self.device}' ({reason}): give another."
            ) from error

    def _device(self) -> str:
        import torch

        if self.options.device != "auto":
            return self.options.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _dtype(self, torch: Any) -> torch.dtype:
        if self.options.dtype == "auto":
            return torch.bfloat16 if self.device.startswith("cuda") else torch.float32  # type: ignore[no-any-return]
        return getattr(torch, self.options.dtype)  # type: ignore[no-any-return]

    def initial_adapter(self, seed: int) -> Adapter:
        """LoRA's usual start, drawn with NumPy so that it is the same on every machine: A uniform, B zero."""
        from fedse.networks.swap import read_adapter

        present = read_adapter(self.network, Adapter({}, self._config))
        tensors = {}
        for name, tensor in present.tensors.items():
            if part(name):
                continue
            if ".lora_A." in name:
                bound = 1.0 / np.sqrt(tensor.shape[1])
                drawn = generator(seed, "initial adapter", name).uniform(-bound, bound, tensor.shape)
                tensors[name] = drawn.astype(np.float32)
            else:
                tensors[name] = np.zeros_like(tensor)
        return Adapter(tensors, self._config)

    def save_base(self, folder: Path) -> None:
        """Write the untouched base and its tokenizer, with all digits, wherever this model computes."""
        import torch

        network, tokenizer = self.load(torch.float32)
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    def save_merged(self, adapter: Adapter, folder: Path) -> None:
        """Write the base model with the adapter merged in, and its tokenizer. This object cannot be used afterwards."""
        from fedse.networks.swap import load_adapter

        load_adapter(self.network, adapter)
        self.network.merge_and_unload().save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # A parent of it is not there, or it is made without a specification.
        return False


def _first_cause(error: BaseException) -> str:
    while cause := error.__cause__ or error.__context__:
        error = cause
    return f"{type(error).__name__}: {short(str(error))}"


def _end_tokens(base: Any) -> list[int]:
    """Every token with which the model may end what it says, by its generation configuration."""
    told = getattr(getattr(base, "generation_config", None), "eos_token_id", None)
    return [] if told is None else [told] if isinstance(told, int) else list(told)


def fused_experts(base: Any) -> str:
    """Name of a tensor that holds the matrices of many experts in one, as layers of a mixture often do; empty: none."""
    for path, module in base.named_modules():
        if not type(module).__module__.startswith("torch."):
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.dim() == 3:
                    return f"{path}.{name}"
    return ""


def attention_layers(base: Any) -> list[str]:
    """Names of the linear layers inside attention."""
    paths = [path.split(".") for path, module in base.named_modules() if type(module).__name__ == "Linear"]
    return sorted({path[-1] for path in paths if any("attn" in piece or "attention" in piece for piece in path[:-1])})


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """PEFT's configuration as JSON values, in an order that does not depend on hashing."""
    plain: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, set):
            plain[key] = sorted(value)
        elif value is None or isinstance(value, (str, int, float, bool, list, dict)):
            plain[key] = value
        else:
            plain[key] = str(value)
    plain["inference_mode"] = True
    return plain
