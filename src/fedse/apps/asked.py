"""The strict reader of what a hub asks: a site does tasks that an honest hub of the same experiment could send, no other.

The adapter must have the tensors of the site's own model, each of the size it has here; a residual beside them
(`adapters/plan.py`) may have as many ranks as the largest module, or as the site's budget allows. Its configuration is the
site's own: what the hub says of it is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError

from fedse.adapters.plan import RESIDUAL, factor, in_part, part
from fedse.engines.flower.wire import FORMAT, Parcel, apart, size
from fedse.errors import OverBudget, UnreadableTask
from fedse.types import Adapter, Layout, RoundTask, Shared, Split, Vector

LAST_ROUND = 999_999
LONGEST = 366 * 24 * 3600
"""Seconds."""
LARGEST = 1e6
"""Of a value of an adapter: beyond it no layer of a network has sense, and sums begin to overflow."""
MOST_SHARED = 1_000_000
"""Values that plug-ins have shared under one name."""

_Name = Annotated[StrictStr, Field(max_length=500)]
_Word = Annotated[StrictStr, Field(max_length=64)]
_Side = Annotated[StrictInt, Field(ge=0, le=2**31)]
_Shape = Annotated[tuple[_Side, ...], Field(max_length=8)]
_Number = StrictFloat | StrictInt


class Header(BaseModel):
    """What stands in the header of a task. A sequence may be a list or a tuple; everything else is taken as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    format: Annotated[StrictInt, Field(ge=FORMAT, le=FORMAT)]
    client: _Name
    run: _Name
    terms: _Name
    round: StrictInt = Field(ge=0, le=LAST_ROUND)
    kind: Literal["train", "evaluate"]
    layout: tuple[tuple[_Name, _Shape], ...] = Field(max_length=1_000_000)
    config: dict[StrictStr, Any]
    split: Split
    world: _Name
    seconds: Annotated[_Number, Field(gt=0, le=LONGEST)] | None
    shared: Annotated[dict[_Word, dict[_Word, tuple[_Shape, tuple[_Number, ...]]]], Field(max_length=100)]
    contributed: Annotated[tuple[_Name, ...], Field(max_length=100_000)]
    library: Annotated[tuple[_Name, ...], Field(max_length=100_000)]
    participants: Annotated[tuple[_Name, ...], Field(max_length=100_000)]
    seal: _Name = ""


@dataclass(frozen=True)
class Expected:
    """What a site knows of tasks before one has come."""

    layout: Layout
    config: Mapping[str, Any]
    worlds: frozenset[str]
    shares: frozenset[str]
    rank: int | None = None
    """Most ranks of a module's adapter with its residual; None: as many as the largest module has."""
    library: bool = False
    """Whether what other clients sent may come along."""

    @classmethod
    def of(
        cls, adapter: Adapter, worlds: frozenset[str], shares: frozenset[str], rank: int | None, library: bool = False
    ) -> Expected:
        return cls(adapter.layout, dict(adapter.config), worlds, shares, rank, library)


def read_header(parcel: Parcel) -> Header:
    """What stands above a task; raises `UnreadableTask`."""
    try:
        return Header.model_validate(dict(parcel.header))
    except (ValidationError, TypeError, ValueError, RecursionError) as error:
        # Values are not repeated: they are the hub's, and may be of any length.
        where = [_place(found["loc"]) for found in error.errors()[:3]] if isinstance(error, ValidationError) else []
        raise UnreadableTask(
            f"the hub's message is not a task of format {FORMAT} (wrong: {', '.join(where) or 'its header'}): hub and site "
            "need the same version of fedse."
        ) from None


def read_task(head: Header, array: Any, expected: Expected) -> RoundTask:
    """The task; raises `UnreadableTask`, or `OverBudget` for its ranks, if it does not fit this site."""
    if head.kind == "train" and head.round < 1:
        raise UnreadableTask(f"the hub asks for round {head.round}: rounds start at 1.")
    if head.world and (head.kind == "train" or head.world not in expected.worlds):
        raise UnreadableTask(f"the hub asks for a world that this site does not have, or for one alone in {head.kind}.")
    _check_layout(head.layout, expected)
    if head.library and not expected.library:
        raise UnreadableTask("the hub sends adapters of other sites, for which this experiment has no use.")
    if len(set(head.library)) < len(head.library):
        raise UnreadableTask("the hub sends two adapters of the same site.")
    vector, library = apart(_array(array, size(head.layout, len(head.library))), head.layout, head.library)
    return RoundTask(
        round=head.round,
        kind=head.kind,
        vector=vector,
        layout=head.layout,
        config=expected.config,
        split=head.split,
        world=head.world,
        seconds=head.seconds,
        shared=_shared(head, expected.shares),
        contributed=head.contributed,
        library=library,
        participants=head.participants,
    )


def _place(location: tuple[str | int, ...]) -> str:
    return "/".join(repr(str(piece)[:40]) for piece in location[:3]) or "its header"


def _check_layout(layout: Layout, expected: Expected) -> None:
    names = [name for name, _ in layout]
    if names != sorted(set(names)):
        raise UnreadableTask("the hub's adapter has a tensor twice, or its tensors are in another order than by name.")
    shared = tuple((name, shape) for name, shape in layout if part(name) != RESIDUAL)
    if shared != expected.layout:
        raise UnreadableTask("the hub's adapter has other tensors than this site's model: use the same model.")
    residual = {name: shape for name, shape in layout if part(name) == RESIDUAL}
    factors = {name: shape for name, shape in expected.layout if factor(name)}
    rank = _rank(residual, factors) if residual else 0
    own = max((shape[0] for name, shape in factors.items() if factor(name) == "A"), default=0)
    if expected.rank is not None and rank + own > expected.rank:
        raise OverBudget(
            f"the hub's adapter has {own} ranks and a residual of {rank}, more than budget.rank = {expected.rank} "
            "of this site allows: nothing was done."
        )


def _rank(residual: Mapping[str, tuple[int, ...]], factors: Mapping[str, tuple[int, ...]]) -> int:
    """Of a residual that has the same number of ranks for each module of the model."""
    ranks = {shape[factor(name) == "B"] for name, shape in residual.items() if len(shape) == 2}
    if len(ranks) != 1:
        raise UnreadableTask("the residual of the hub's adapter does not fit this site's model.")
    (rank,) = ranks
    if residual != {in_part(name, RESIDUAL): _widened(shape, name, rank) for name, shape in factors.items()}:
        raise UnreadableTask("the residual of the hub's adapter does not fit this site's model.")
    if not 1 <= rank <= max(_smaller_sides(factors), default=0):
        raise UnreadableTask(f"the residual of the hub's adapter has {rank} ranks, which no module of this model has.")
    return rank


def _widened(shape: tuple[int, ...], name: str, rank: int) -> tuple[int, ...]:
    """The shape that a factor's residual has."""
    return (rank, shape[1]) if factor(name) == "A" else (shape[0], rank)


def _smaller_sides(factors: Mapping[str, tuple[int, ...]]) -> list[int]:
    """Of each module: more ranks than that say nothing new."""
    widths = {name.replace(".lora_A.", ".lora_*."): shape[1] for name, shape in factors.items() if factor(name) == "A"}
    heights = {name.replace(".lora_B.", ".lora_*."): shape[0] for name, shape in factors.items() if factor(name) == "B"}
    return [min(widths[stem], heights[stem]) for stem in widths.keys() & heights.keys()]


def _array(array: Any, values: int) -> Vector:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != (values,):
        raise UnreadableTask("the hub's adapter is not one array of 32-bit floats of the size that it announces.")
    # Read once, and without a copy of all of it: an adapter may be large.
    if array.size and not (np.max(array) <= LARGEST and np.min(array) >= -LARGEST):
        raise UnreadableTask(f"the hub's adapter has values that are not finite, or beyond {LARGEST:g}.")
    return np.asarray(array, dtype=np.float32)


def _shared(head: Header, names: frozenset[str]) -> Shared:
    found: dict[str, dict[str, Vector]] = {}
    for name, given in head.shared.items():
        if name not in names:
            raise UnreadableTask("the hub shares numbers under a name that no plug-in of this experiment has.")
        if sum(len(values) for _, values in given.values()) > MOST_SHARED:
            raise UnreadableTask(f"the hub shares more than {MOST_SHARED} numbers under one name.")
        found[name] = {key: _tensor(shape, values) for key, (shape, values) in given.items()}
    return found


def _tensor(shape: tuple[int, ...], values: tuple[float, ...]) -> Vector:
    try:
        with np.errstate(over="ignore"):
            tensor = np.asarray(values, dtype=np.float64).astype(np.float32).reshape(shape)
    except (ValueError, OverflowError) as error:
        raise UnreadableTask("numbers that the hub shares have another shape than it says.") from error
    if not np.isfinite(tensor).all():
        raise UnreadableTask("numbers that the hub shares are not finite.")
    return tensor
