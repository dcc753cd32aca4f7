"""Loss and gradient through any network's own forward pass, padded on the right. Logits of the agent's tokens only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from fedse.networks.attention_backends import for_any_length
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.soft_targets import SoftTargets
from fedse.networks.training.token_packing import Example
from fedse.stopwatch import during


class PaddedNetwork:
    def __init__(self, network: Any, vector: LoraVector, checkpointing: bool = False) -> None:
        self.network, self._vector, self._checkpointing = network.eval(), vector, checkpointing
        frozen = next(parameter for parameter in network.parameters() if not parameter.requires_grad)
        self._device = frozen.device
        self._rounded = [module for module in network.modules() if type(module).__module__.startswith("bitsandbytes")]
        low = network.dtype in (torch.bfloat16, torch.float16)
        # A base that was rounded to integers has no precision of its own and computes as its other parts do.
        self._casts = low and bool(self._rounded)
        lowered = [*vector.parameters, *vector.frozen] if low and not self._rounded else []
        self._lowered = [(item, torch.empty_like(item, dtype=network.dtype)) for item in lowered]

    def training(self, vector: LoraVector) -> PaddedNetwork:
        """The same network with the tensors of another vector."""
        return type(self)(self.network, vector, self._checkpointing)

    def add_gradient(
        self,
        part: Sequence[Example],
        importance: float | npt.NDArray[np.float32],
        soft: SoftTargets | None = None,
    ) -> tuple[torch.Tensor, int]:
        """Loss of the examples times `importance`, and that of soft targets, if there are any. The gradient is added to the
        vector's; tokens that were computed."""
        ids, train = collate(part, self._device)
        # Where layers compute twice, the second time is in the backward pass and needs the same kernels.
        with self._training(), self._holding_the_vector(), for_any_length():
            with during("loss"):
                if isinstance(importance, float) and soft is None:
                    loss = self.loss(ids, train) * importance
                else:
                    logits = self.logits(ids, train)
                    factors = importance if isinstance(importance, float) else self._moved(importance)
                    loss = (_losses(logits, ids, train) * factors).sum()
                    if soft is not None:
                        likely = torch.log_softmax(logits, dim=-1).gather(1, self._moved(soft.ids))
                        loss = loss - (likely * self._moved(soft.weights)).sum()
            with during("backward"):
                self._vector.add_gradients(torch.autograd.grad(loss, self._vector.parameters))
        return loss.detach(), ids.numel()

    @torch.no_grad()
    def log_probabilities(self, part: Sequence[Example]) -> torch.Tensor:
        """Of the agent's tokens, one example after another."""
        with self._holding_the_vector():
            return -self.losses(*collate(part, self._device))

    @torch.no_grad()
    def likely_tokens(self, part: Sequence[Example], most: int) -> tuple[torch.Tensor, torch.Tensor]:
        """In the place of each of the agent's tokens, so many and their log-probabilities."""
        with self._holding_the_vector():
            likely = torch.log_softmax(self.logits(*collate(part, self._device)), dim=-1)
        top = likely.topk(min(most, likely.shape[1]))
        return top.indices, top.values

    def loss(self, ids: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
        """Summed negative log-likelihood of the agent's tokens, each predicted from everything before it."""
        return self.losses(ids, train, "sum")

    def losses(self, ids: torch.Tensor, train: torch.Tensor, reduction: str = "none") -> torch.Tensor:
        """Of each of the agent's tokens, one example after another."""
        return _losses(self.logits(ids, train), ids, train, reduction)

    def logits(self, ids: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
        """In float32, where a token of the agent is predicted."""
        predicting = functional.pad(train[:, 1:], (0, 1))
        precision = torch.autocast(self._device.type, self.network.dtype, enabled=self._casts)
        with precision, for_any_length(), self._selecting(predicting):
            # Nothing looks ahead, so that padding on the right needs no mask, and attention without one has faster kernels.
            logits = self.network(input_ids=ids, use_cache=False).logits
        if logits.dim() == 3:
            logits = logits[predicting]
        precise: torch.Tensor = logits.float()
        return precise

    def _moved(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    @contextmanager
    def _selecting(self, predicting: torch.Tensor) -> Iterator[None]:
        """The output layer sees only positions that predict a token of the agent."""
        head = self.network.get_base_model().get_output_embeddings()
        if head is None:
            yield
            return
        hook = head.register_forward_pre_hook(lambda _, inputs: (inputs[0][predicting.to(inputs[0].device)],))
        try:
            yield
        finally:
            hook.remove()

    @contextmanager
    def _holding_the_vector(self) -> Iterator[None]:
        """The network holds the vector, in its own precision: PEFT would otherwise take the inputs of every layer to that of
        the adapter and back."""
        self._vector.put_back()
        if not self._lowered:
            yield
            return
        precise = [item.data for item, _ in self._lowered]
        with torch.no_grad():
            torch._foreach_copy_([low for _, low in self._lowered], precise)
        for item, low in self._lowered:
            item.data = low
        try:
            yield
        finally:
            for (item, _), data in zip(self._lowered, precise, strict=True):
                item.data = data

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Modules train only where they compute something else otherwise; what they drop by themselves is an attribute.

        Dropout draws from torch's global stream, so that no run could be repeated or go on; LoRA is fitted without it.
        """
        base, training = self.network.get_base_model(), self._rounded
        if self._checkpointing:
            base.gradient_checkpointing_enable({"use_reentrant": False})
            # Layers compute twice only while they train.
            twice = [module for module in self.network.modules() if getattr(module, "gradient_checkpointing", False)]
            training = [*training, *twice]
        chances = [
            (module, name, value)
            for module in training
            for name, value in vars(module).items()
            if "drop" in name and type(value) is float
        ]
        for module in training:
            module.training = True
        for module, name, _ in chances:
            setattr(module, name, 0.0)
        try:
            yield
        finally:
            for module, name, value in chances:
                setattr(module, name, value)
            for module in training:
                module.training = False
            if self._checkpointing:
                base.gradient_checkpointing_disable()


def _losses(logits: torch.Tensor, ids: torch.Tensor, train: torch.Tensor, reduction: str = "none") -> torch.Tensor:
    return functional.cross_entropy(logits, ids[:, 1:][train[:, 1:]], reduction=reduction)


def collate(examples: Sequence[Example], device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and train mask."""
    shape = (len(examples), max(map(len, examples)))
    ids = torch.zeros(shape, dtype=torch.long)
    train = torch.zeros(shape, dtype=torch.bool)
    for row, example in enumerate(examples):
        ids[row, : len(example)] = torch.from_numpy(example.ids)
        train[row, : len(example)] = torch.from_numpy(example.train)
    with during("transfer"):
        return ids.to(device), train.to(device)
