"""Tasks and answers as Flower carries them: a header of plain JSON and one array.

One array, because Flower pays for each: 200 tensors of 20 MB took 120 s a round where the same bytes in one took 18 s.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedse.adapters.packing import length
from fedse.adapters.plan import shared_layout
from fedse.privacy.names import known_kind
from fedse.types import ClientFailure, ClientReply, Layout, Library, RoundTask, Shared, Vector

FORMAT = 5
"""2: what plug-ins share, and what further probes measured. 3: whose updates an adapter was made of. 4: the library. 5: the
participants of a secure sum."""
SITE = "site"
"""Key of a node's configuration, and of its answer to a hub without keys, under which its name stands."""
CONFIG = frozenset(
    {
        *("peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "bias", "target_modules", "exclude_modules"),
        *("fan_in_fan_out", "use_rslora", "use_dora", "init_lora_weights", "inference_mode", "modules_to_save"),
        *("layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern", "target_parameters", "lora_bias"),
    }
)
"""What sites are told of an adapter's configuration. Of the base model they hear nothing: it may be a path of the hub."""
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Parcel:
    """What crosses in one message."""

    header: Mapping[str, Any]
    array: Array | None = None


def pack_task(task: RoundTask, client: str, run: str, terms: str) -> Parcel:
    header = {
        "format": FORMAT,
        "client": client,
        "run": run,
        "terms": terms,
        "round": task.round,
        "kind": task.kind,
        "layout": task.layout,
        "config": {key: value for key, value in task.config.items() if key in CONFIG},
        "split": task.split,
        "world": task.world,
        "seconds": task.seconds,
        "shared": _plain(task.shared),
        "contributed": task.contributed,
        "library": tuple(task.library),
        "participants": task.participants,
    }
    return Parcel(header, np.concatenate([task.vector, *task.library.values()]) if task.library else task.vector)


def read_task(parcel: Parcel) -> RoundTask:
    head = parcel.header
    if head["format"] != FORMAT or parcel.array is None:
        raise ValueError("a task of another format: hub and site need the same version of fedse")
    layout = _layout(head["layout"])
    vector, library = apart(np.asarray(parcel.array, dtype=np.float32), layout, head["library"])
    return RoundTask(
        round=int(head["round"]),
        kind=head["kind"],
        vector=vector,
        layout=layout,
        config=head["config"],
        split=head["split"],
        world=str(head["world"]),
        seconds=head["seconds"],
        shared=_tensors(head["shared"]),
        contributed=tuple(head["contributed"]),
        library=library,
        participants=tuple(head["participants"]),
    )


def size(layout: Layout, clients: int) -> int:
    """Values of the array of a task: the broadcast adapter, and after it the shared pairs of so many clients."""
    return length(layout) + clients * length(shared_layout(layout))


def apart(array: Vector, layout: Layout, clients: Sequence[str]) -> tuple[Vector, Library]:
    """The broadcast adapter and the library in the array of a task, which has the right size."""
    whole, each = length(layout), length(shared_layout(layout))
    starts = range(whole, whole + each * len(clients), each) if each else [whole] * len(clients)
    return array[:whole], {client: array[start : start + each] for client, start in zip(clients, starts, strict=True)}


def pack_reply(answer: ClientReply) -> Parcel:
    """Field by field: what is not named here does not leave."""
    if isinstance(answer, ClientFailure):
        return Parcel({"format": FORMAT, "failure": answer.kind})
    header = {
        "format": FORMAT,
        "layout": answer.layout,
        "counts": dict(answer.counts),
        "metrics": {name: value if math.isfinite(value) else None for name, value in answer.metrics.items()},
        "scores": [asdict(score) for score in answer.scores],
        "precision": answer.encoded.precision if answer.encoded else None,
        "shared": _plain(answer.shared),
        "probes": {name: [asdict(score) for score in scores] for name, scores in answer.probes.items()},
    }
    return Parcel(header, answer.encoded.array if answer.encoded else None)


def _plain(shared: Shared) -> dict[str, dict[str, Any]]:
    """Few numbers each: they cross in the header."""
    return {
        name: {key: [list(tensor.shape), tensor.astype(np.float64).ravel().tolist()] for key, tensor in given.items()}
        for name, given in shared.items()
    }


def _tensors(content: Mapping[str, Mapping[str, Any]]) -> Shared:
    return {
        name: {key: np.asarray(values, dtype=np.float32).reshape(shape) for key, (shape, values) in given.items()}
        for name, given in content.items()
    }


def renamed(failure: Exception) -> str:
    """The class of an error, the only thing that is told of it."""
    return known_kind(type(failure).__name__)


def to_records(parcel: Parcel) -> Any:
    """As the content of a Flower message."""
    from flwr.app import Array as FlowerArray
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    records = RecordDict({"header": ConfigRecord({"json": json.dumps(parcel.header)})})
    if parcel.array is not None:
        records["adapter"] = ArrayRecord({"packed": FlowerArray(np.ascontiguousarray(parcel.array))})
    return records


def from_records(records: Any) -> Parcel:
    array = records["adapter"]["packed"].numpy() if "adapter" in records else None
    return Parcel(json.loads(records["header"]["json"]), array)


def to_bytes(parcel: Parcel) -> bytes:
    """For the socket between a site's worker and the process that Flower starts for each message."""
    array = None if parcel.array is None else np.ascontiguousarray(parcel.array)
    kind = None if array is None else [array.dtype.str, list(array.shape)]
    head = json.dumps({"header": parcel.header, "array": kind}).encode()
    return len(head).to_bytes(8, "big") + head + (b"" if array is None else array.tobytes())


def from_bytes(content: bytes) -> Parcel:
    end = 8 + int.from_bytes(content[:8], "big")
    head = json.loads(content[8:end])
    if head["array"] is None:
        return Parcel(head["header"])
    dtype, shape = head["array"]
    return Parcel(head["header"], np.frombuffer(content, dtype=np.dtype(dtype), offset=end).reshape(shape))


def _layout(pairs: Any) -> Layout:
    return tuple((str(name), tuple(int(side) for side in shape)) for name, shape in pairs)
