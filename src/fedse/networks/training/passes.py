"""Ways to get loss and gradient of some examples: packed, packed and recorded as CUDA graphs, or padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from fedse.errors import BadInput
from fedse.networks.swap import load_adapter, read_adapter, train_only
from fedse.networks.training.graph_sizes import Sizes
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.packed_attention import Openings, Segments
from fedse.networks.training.packed_llama import PackedLlama, PackTensors, owners_of
from fedse.networks.training.padded_network import PaddedNetwork
from fedse.networks.training.pass_graphs import PassGraphs
from fedse.networks.training.soft_targets import LikelyTokens, SoftTargets
from fedse.networks.training.token_packing import Example, Pack, pack
from fedse.networks.training.unit_rows import UnitRows
from fedse.stopwatch import during
from fedse.types import Adapter

Importance = float | npt.NDArray[np.float32]
"""Factor of the loss of all targets, or of each: the agent's tokens of one example after another."""

_NO_INNER_LAYERS = (
    "what inner layers say is known of networks of Llama's family with plain LoRA, in one precision on one device: choose "
    "such a model, or leave `learner.bottom_up` out."
)
_ONE_ADAPTER = "the network's own forward pass knows one adapter"


class Pass(Protocol):
    vector: LoraVector
    """What is trained."""
    shares_opening: bool
    """Whether a beginning that all examples share is computed once."""
    alone: bool
    """Whether the network holds the only adapter, so that no other pass can be used at the same time."""
    rank: int
    """Of an adapter, the highest of a module."""
    needs: Sequence[Sizes]
    """Of what is expected, one part after another, where it matters."""

    def add_gradient(
        self, part: Sequence[Example], opening: int, importance: Importance, soft: SoftTargets | None = None
    ) -> tuple[torch.Tensor, int]:
        """Loss of the examples times `importance`, and that of soft targets, if there are any. The gradient is added to the
        vector's; tokens that were computed."""
        ...

    def unit_gradients(self, units: Sequence[Sequence[Example]]) -> torch.Tensor:
        """Of the mean loss of each unit's targets by itself: units x values. Units share nothing, one that is not finite
        leaves the others as they are, and the vector's gradient stays what it was."""
        ...

    def log_probabilities(self, part: Sequence[Example], opening: int) -> npt.NDArray[np.float32]:
        """Of the agent's tokens, one example after another."""
        ...

    def likely_tokens(self, part: Sequence[Example], opening: int, most: int) -> LikelyTokens:
        """So many in the place of each of the agent's tokens, one example after another."""
        ...

    def layer_entropies(self, part: Sequence[Example], opening: int, normed: bool) -> npt.NDArray[np.float32]:
        """Of the distributions that each layer has in the places of the agent's tokens: layers x places."""
        ...

    def inner(self, layer: int, normed: bool) -> Pass:
        """One that trains the same vector, through the distributions of this layer: layers are counted from 1. With `normed`
        the stream goes through the last norm before the output layer reads it. Raises `BadInput` where it cannot be."""
        ...

    def expect(self, parts: Sequence[Sequence[Example]], opening: int) -> None:
        """Get ready for these, which come next in any order."""
        ...

    def begin(self, start: Adapter) -> None:
        """Make the vector hold what of this adapter is trained; it is of the kind that the pass was made for."""
        ...

    def result(self, like: Adapter) -> Adapter:
        """What came of it, with the configuration of `like`."""
        ...

    def beside(self) -> Pass:
        """Another for another adapter, to be used at the same time, unless this one is alone."""
        ...

    def reading(self, vectors: Sequence[LoraVector]) -> PackedLlama:
        """The network with the adapters of all of these, unless this pass is alone."""
        ...


def pass_for(network: Any, checkpointing: bool) -> Pass:
    """The fastest that suits the network."""
    vector = LoraVector(network)
    if PackedLlama.suits(network):
        llama = PackedLlama(network, vector, checkpointing)
        return (RecordedPass if llama.worth_recording else PackedPass)(vector, llama)
    return PaddedPass(vector, PaddedNetwork(network, vector, checkpointing))


def inner_layers(network: Any) -> int:
    """Layers below the last one, each of which a pass can go through instead. Raises `BadInput` where none can."""
    if not PackedLlama.suits(network):
        raise BadInput(_NO_INNER_LAYERS)
    return int(network.config.num_hidden_layers) - 1


class PackedPass:
    """End to end, without padding."""

    shares_opening = True
    alone = False
    needs: Sequence[Sizes] = ()

    def __init__(self, vector: LoraVector, llama: PackedLlama) -> None:
        self.vector = vector
        self.rank = llama.rank
        self._llama = llama

    def add_gradient(
        self, part: Sequence[Example], opening: int, importance: Importance, soft: SoftTargets | None = None
    ) -> tuple[torch.Tensor, int]:
        packed = pack(part, opening)
        with during("transfer"):
            tensors = tensors_of(packed, importance, self._llama.device, soft)
        return self._llama.add_gradient(tensors), len(packed.ids)

    def unit_gradients(self, units: Sequence[Sequence[Example]]) -> torch.Tensor:
        packed = pack([example for unit in units for example in unit], 0)
        tokens, targets = ([sum(map(count, unit)) for unit in units] for count in (len, _targets))
        means = np.repeat(1.0 / np.array(targets), targets).astype(np.float32)
        with during("transfer"):
            device = self._llama.device
            rows = (UnitRows.of(tokens, device), UnitRows.of(targets, device))
            tensors = replace(tensors_of(packed, means, device), units=rows)
        return self._llama.unit_gradients(tensors)

    def log_probabilities(self, part: Sequence[Example], opening: int) -> npt.NDArray[np.float32]:
        found = self._llama.log_probabilities(tensors_of(pack(part, opening), 1.0, self._llama.device))
        return found.cpu().numpy()

    def likely_tokens(self, part: Sequence[Example], opening: int, most: int) -> LikelyTokens:
        tensors = tensors_of(pack(part, opening), 1.0, self._llama.device)
        ids, log_probs = self._llama.likely_tokens(tensors, most)
        return LikelyTokens(ids.cpu().numpy(), log_probs.cpu().numpy())

    def layer_entropies(self, part: Sequence[Example], opening: int, normed: bool) -> npt.NDArray[np.float32]:
        tensors = tensors_of(pack(part, opening), 1.0, self._llama.device)
        return self._llama.layer_entropies(tensors, normed).cpu().numpy()

    def inner(self, layer: int, normed: bool) -> Pass:
        return PackedPass(self.vector, self._llama.up_to(layer, normed))

    def expect(self, parts: Sequence[Sequence[Example]], opening: int) -> None:
        """Every size is as good as any other."""

    def begin(self, start: Adapter) -> None:
        self.vector.hold(start)

    def result(self, like: Adapter) -> Adapter:
        return self.vector.adapter(like)

    def beside(self) -> Pass:
        vector = self.vector.another()
        return type(self)(vector, self._llama.reading(vector))

    def reading(self, vectors: Sequence[LoraVector]) -> PackedLlama:
        return self._llama.reading(*vectors)


class RecordedPass(PackedPass):
    """The same as CUDA graphs of fixed sizes: small networks are otherwise limited by launching their kernels. With soft
    targets, through an inner layer and for units apart, nothing is recorded; without a gradient, what fits into
    the sizes of a recorded gradient."""

    def __init__(self, vector: LoraVector, llama: PackedLlama) -> None:
        super().__init__(vector, llama)
        self._graphs = PassGraphs(llama)

    def expect(self, parts: Sequence[Sequence[Example]], opening: int) -> None:
        self.needs = [Sizes.of_part(part, opening) for part in parts]
        self._graphs.expect(self.needs)

    def add_gradient(
        self, part: Sequence[Example], opening: int, importance: Importance, soft: SoftTargets | None = None
    ) -> tuple[torch.Tensor, int]:
        if soft is not None:
            return super().add_gradient(part, opening, importance, soft)
        return self._graphs.add_gradient(pack(part, opening), importance)

    def log_probabilities(self, part: Sequence[Example], opening: int) -> npt.NDArray[np.float32]:
        found = self._graphs.log_probabilities(pack(part, opening))
        return super().log_probabilities(part, opening) if found is None else found.cpu().numpy()


class PaddedPass:
    """Through the network's own forward pass."""

    shares_opening = False
    alone = True
    rank = 0
    needs: Sequence[Sizes] = ()

    def __init__(self, vector: LoraVector, padded: PaddedNetwork) -> None:
        self.vector = vector
        self._padded = padded

    def add_gradient(
        self, part: Sequence[Example], opening: int, importance: Importance, soft: SoftTargets | None = None
    ) -> tuple[torch.Tensor, int]:
        del opening  # Nothing is shared here.
        return self._padded.add_gradient(part, importance, soft)

    def unit_gradients(self, units: Sequence[Sequence[Example]]) -> torch.Tensor:
        """A pass for each: what the network's own layers add up cannot be told apart."""
        gradient = self.vector.gradient
        before, found = gradient.clone(), gradient.new_empty(len(units), gradient.numel())
        for unit, own in zip(units, found, strict=True):
            gradient.zero_()
            self._padded.add_gradient(unit, 1.0 / sum(map(_targets, unit)))
            own.copy_(gradient)
        gradient.copy_(before)
        return found

    def log_probabilities(self, part: Sequence[Example], opening: int) -> npt.NDArray[np.float32]:
        del opening  # Nothing is shared here.
        return self._padded.log_probabilities(part).cpu().numpy()

    def likely_tokens(self, part: Sequence[Example], opening: int, most: int) -> LikelyTokens:
        del opening  # Nothing is shared here.
        ids, log_probs = self._padded.likely_tokens(part, most)
        return LikelyTokens(ids.cpu().numpy(), log_probs.cpu().numpy())

    def layer_entropies(self, part: Sequence[Example], opening: int, normed: bool) -> npt.NDArray[np.float32]:
        del part, opening, normed  # The network's own forward pass tells of its end only.
        raise BadInput(_NO_INNER_LAYERS)

    def inner(self, layer: int, normed: bool) -> Pass:
        del layer, normed  # The same.
        raise BadInput(_NO_INNER_LAYERS)

    def expect(self, parts: Sequence[Sequence[Example]], opening: int) -> None:
        """Every size is as good as any other."""

    def begin(self, start: Adapter) -> None:
        network = self._padded.network
        load_adapter(network, start)
        train_only(network, start)
        if self.vector.outdated:
            self.vector = LoraVector(network)
            self._padded = self._padded.training(self.vector)
        self.vector.take()

    def result(self, like: Adapter) -> Adapter:
        self.vector.put_back()
        return read_adapter(self._padded.network, like)

    def beside(self) -> Pass:
        raise NotImplementedError(_ONE_ADAPTER)

    def reading(self, vectors: Sequence[LoraVector]) -> PackedLlama:
        raise NotImplementedError(_ONE_ADAPTER)


def _targets(example: Example) -> int:
    return example.agent_tokens


def tensors_of(
    packed: Pack, importance: Importance, device: torch.device, soft: SoftTargets | None = None
) -> PackTensors:
    def moved(array: Any) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    need = Sizes.of_pack(packed)
    edges = np.cumsum((0, *packed.lengths), dtype=np.int32)
    openings = Openings(*map(moved, Openings.numbers(packed.groups, need.segments)))
    segments = Segments(
        opening=need.opening,
        copies=need.copies,
        tokens=need.tokens,
        groups=packed.groups,
        lengths=packed.lengths,
        boundaries=moved(edges),
        longest=need.longest,
        openings=openings,
    )
    predicting = moved(packed.predicting)
    return PackTensors(
        ids=moved(packed.ids),
        positions=moved(packed.positions),
        predicting=predicting,
        targets=moved(packed.targets),
        importance=moved(importance)
        if isinstance(importance, np.ndarray)
        else torch.full((len(packed.targets),), importance, device=device),
        segments=segments,
        soft=None if soft is None else (moved(soft.ids), moved(soft.weights)),
        owners=owners_of(segments, predicting, len(packed.groups)),
    )
