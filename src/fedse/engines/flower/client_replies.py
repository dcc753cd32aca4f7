"""The only reader of what sites send. Everything is bounded and checked before it is used, by types, ranges and lists.

A site with a valid key may send anything. What does not pass here is that site's `UnreadableAnswer`, and the others go on.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedse.adapters.packing import length
from fedse.adapters.plan import Plan, part_to_send, sent_layout
from fedse.adapters.rounding import decode, encoded_form
from fedse.engines.flower.wire import FORMAT, SITE
from fedse.federation.expected import Expected, Unexpected
from fedse.federation.shared import MOST_VALUES
from fedse.privacy.names import known_errors, known_kind
from fedse.types import (
    ClientFailure,
    ClientReply,
    ClientUpdate,
    Encoded,
    Masked,
    Precision,
    RoundTask,
    Shared,
    Split,
    Vector,
    WorldScore,
)

DEEPEST = 8
"""Lists and maps inside each other; an honest header has five."""
LONGEST_NUMBER = 18
"""Digits of a count."""
LONGEST_NAME = 200
MOST_NAMES = 256
LARGEST = 10**15
_NUMPY = "numpy.ndarray"

Count = Annotated[int, Field(ge=0, le=LARGEST)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


class _Form(BaseModel):
    """No text for a number, no number for a flag, nothing that is not finite, and no field that nobody reads."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


F = TypeVar("F", bound=_Form)


class _Score(_Form):
    world: Name
    split: Split
    episodes: Count
    successes: Count
    steps: Count
    tokens: Count
    invalid: Count
    errors: dict[Name, Count] = Field(max_length=MOST_NAMES)
    floor: Number
    ceiling: Number | None

    def score(self) -> WorldScore:
        return WorldScore(**{**dict(self), "errors": known_errors(self.errors)})


_Scores = Annotated[list[_Score], Field(max_length=MOST_NAMES)]
_Shape = Annotated[list[Count], Field(max_length=8)]
# JSON has no tuples.
_Tensor = Annotated[tuple[_Shape, Annotated[list[Number], Field(max_length=MOST_VALUES)]], Field(strict=False)]
_Entry = Annotated[tuple[Name, _Shape], Field(strict=False)]


class _Update(_Form):
    format: Literal[5]
    layout: list[_Entry]
    counts: dict[Name, Count] = Field(max_length=MOST_NAMES)
    metrics: dict[Name, float | None] = Field(max_length=MOST_NAMES)
    """None is a metric that is not a number; NaN is no JSON."""
    scores: _Scores
    precision: Precision | Masked | None
    shared: dict[Name, dict[Name, _Tensor]] = Field(max_length=MOST_NAMES)
    probes: dict[Name, _Scores] = Field(max_length=MOST_NAMES)


class _Failure(_Form):
    format: Literal[5]
    failure: Name


class _Introduction(_Form):
    format: Literal[5]
    site: Name


assert FORMAT == 5 and SITE in _Introduction.model_fields


def read_reply(records: Any, client: str, task: RoundTask, plan: Plan, expected: Expected) -> ClientReply:
    """The answer of a client to a task. Both are known to the engine; what the message says of them is not asked.

    Raises `Unexpected`, or whatever else comes of records that are none.
    """
    header = read_header(records, expected.header_bytes())
    if "failure" in header:
        return ClientFailure(client, task.name, known_kind(_formed(_Failure, header).failure))
    form = _formed(_Update, header)
    layout = sent_layout(task, plan)
    if tuple((name, tuple(shape)) for name, shape in form.layout) != layout:
        raise Unexpected("layout: its tensors have other names or shapes than the broadcast adapter")
    encoded, vector = None, None
    if form.precision is not None:
        encoded = Encoded(form.precision, _array(records, *encoded_form(form.precision, length(layout))))
        if form.precision not in get_args(Masked):
            with np.errstate(all="ignore"):  # What is not finite is refused with its name, later.
                vector = decode(encoded, part_to_send(task, plan))
    shared = _shared(form.shared)
    try:
        update = ClientUpdate(
            client=client,
            round=task.round,
            vector=vector,
            layout=layout,
            counts=form.counts,
            metrics={name: float("nan") if value is None else float(value) for name, value in form.metrics.items()},
            scores=tuple(score.score() for score in form.scores),
            task=task.name,
            encoded=encoded,
            shared=shared,
            probes={name: tuple(score.score() for score in scores) for name, scores in form.probes.items()},
        )
    except ValueError as error:
        raise Unexpected("names that are none, or more successes than episodes") from error
    expected.check(update, task)
    return update


def read_introduction(records: Any) -> str:
    """The name by which a site without a key calls itself."""
    return _formed(_Introduction, read_header(records, 1024)).site


def read_header(records: Any, most: int) -> Mapping[str, Any]:
    """A JSON object of bounded size, depth and numbers."""
    text = records["header"]["json"]
    if not isinstance(text, str) or len(text) > most:
        raise Unexpected("the header is no text, or too long")
    signs = np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8)
    opened = np.isin(signs, (ord("["), ord("{"))).astype(np.int8) - np.isin(signs, (ord("]"), ord("}")))
    if signs.size and int(np.cumsum(opened, dtype=np.int64).max()) > DEEPEST:
        raise Unexpected("the header is nested too deeply")
    try:
        header = json.loads(text, parse_constant=_no_number, parse_int=_bounded)
    except (ValueError, RecursionError) as error:
        raise Unexpected("the header is no JSON, or holds a number that is too large or none") from error
    if not isinstance(header, dict):
        raise Unexpected("the header is no map")
    return header


def why(error: Exception) -> str:
    """What was wrong with an answer. Nothing that a site chose stands in it."""
    return str(error) if isinstance(error, Unexpected) else type(error).__name__


def _formed(form: type[F], header: Mapping[str, Any]) -> F:
    try:
        return form.model_validate(header)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = str(first["loc"][0]) if first["loc"] and first["loc"][0] in form.model_fields else "the header"
        raise Unexpected(f"{field}: {first['type']}") from error


def _array(records: Any, dtype: str, size: int) -> npt.NDArray[Any]:
    """The packed array, after its own header has said that it is what was asked for."""
    if "adapter" not in records:
        raise Unexpected("the array is missing that the header announces")
    packed = records["adapter"]["packed"]
    if packed.stype != _NUMPY:
        raise Unexpected("the array is not one of NumPy")
    content = io.BytesIO(packed.data)
    try:
        version = np.lib.format.read_magic(content)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, found = read(content)
    except (ValueError, KeyError, TypeError) as error:
        raise Unexpected("the array has no header of NumPy's") from error
    begin = content.tell()
    if found != np.dtype(dtype) or shape != (size,) or len(packed.data) - begin != size * found.itemsize:
        raise Unexpected(f"the array is not one of {size} values of type {np.dtype(dtype)}")
    del fortran  # The same for a row of values.
    return np.frombuffer(packed.data, dtype=found, offset=begin)


def _shared(content: Mapping[str, Mapping[str, tuple[list[int], list[float]]]]) -> Shared:
    found: dict[str, dict[str, Vector]] = {}
    for name, given in content.items():
        if sum(len(values) for _, values in given.values()) > MOST_VALUES:
            raise Unexpected("shared: too many values")
        found[name] = {}
        for key, (shape, values) in given.items():
            if prod(shape) != len(values):
                raise Unexpected("shared: values that do not fit their shape")
            found[name][key] = np.asarray(values, dtype=np.float32).reshape(shape)
    return found


def _bounded(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError
    return int(digits)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)
