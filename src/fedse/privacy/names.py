"""The names under which anything may leave a site. All of them are known before a run; every other one becomes `other`.

A name that is made while a run goes on, by a world, a model or a plug-in, could hold a sentence of a trajectory.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fedse import errors
from fedse.errors import BadInput
from fedse.plugins.shipped import KNOWN
from fedse.types import ClientUpdate, Shared, WorldScore

T = TypeVar("T")
OTHER = "other"
YES_OR_NO = frozenset({"only_measures", "diverged"})
"""Counts that are 0 or 1."""
NOT_ALWAYS_COUNTED = frozenset({*YES_OR_NO, "fresh", "hinted", "hint_tokens", "rescued", "prefixed"})
"""Told where there is something to tell."""
COUNTS = frozenset(
    {
        *("explored", "errors", "successes", "kept", "added", "buffer", "learned_from", "steps", "invalid"),
        "agent_tokens",
        *NOT_ALWAYS_COUNTED,
    }
)
"""What a client counts in a round."""
METRICS = frozenset(
    {"loss", "first_loss", "steps", "tokens", "padded_share", "shared_share", "rounding", "sampler_gap"}
)
"""Of any learner. One that measures something else names it in its attribute `metrics`."""
_ELSEWHERE = (
    # Errors of fedse that are not in `errors`, and what stands in their place when a message gets no answer.
    *("HubFailed", "RunFailed", "RunLost", "ServerLost", "KeyIsSpent", "Refused"),
    *("AgentGymFailed", "OpenEnvFailed", "McpFailed", "NotThere"),
    *("Lost", "UnreadableAnswer", "UnknownFailure"),
    *("AppNotLoaded", "AppFailed", "AppCrashed", "PreconditionFailed", "BundleRefused"),
    # Of the libraries that sites use.
    *("ValidationError", "OutOfMemoryError", "AcceleratorError", "LinAlgError", "SafetensorError", "UFuncTypeError"),
    *("OperationalError", "DatabaseError", "IntegrityError", "JSONDecodeError", "ProcessError", "AuthenticationError"),
    *("APIError", "APIConnectionError", "APIStatusError", "APITimeoutError", "RateLimitError", "InternalServerError"),
    *("HTTPError", "HTTPStatusError", "ConnectError", "ConnectTimeout", "ReadTimeout", "URLError", "HTTPException"),
)
KINDS = frozenset(
    {
        *(
            name
            for module in (builtins, errors)
            for name, kind in vars(module).items()
            if isinstance(kind, type) and issubclass(kind, Exception)
        ),
        *_ELSEWHERE,
        OTHER,
    }
)
"""Classes of errors."""


def known_kind(name: str) -> str:
    """The class of an error as others may hear of it."""
    return name if name in KINDS else OTHER


def told_worlds(labels: Iterable[str], written: Collection[str]) -> dict[str, str]:
    """Under which names a site tells of its worlds: those of fedse and those that the common experiment file names for it.

    >>> told_worlds(["maze", "Clinic", "Ward"], ["Clinic"])
    {'maze': 'maze', 'Clinic': 'Clinic', 'Ward': 'other'}
    """
    told: dict[str, str] = {}
    for label in labels:
        if may_be_told(label, written) and label.split("#")[0] != OTHER:
            told[label] = label
        else:
            number = 1 + sum(name.split("#")[0] == OTHER for name in told.values())
            told[label] = OTHER if number == 1 else f"{OTHER}#{number}"
    return told


def may_be_told(name: str, written: Collection[str]) -> bool:
    """Whether a world may have this name at the hub. `#2` is the second of a name."""
    stem, mark, number = name.partition("#")
    numbered = not mark or (number.isascii() and number.isdigit() and len(number) <= 2)
    return name in written or (numbered and (stem == OTHER or stem in KNOWN["world"]))


@dataclass(frozen=True)
class Names:
    """The lists of one site."""

    worlds: Mapping[str, str]
    """The name under which it tells of each of its worlds."""
    metrics: frozenset[str] = METRICS
    probes: frozenset[str] = frozenset()
    shares: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What its plug-ins share, and the tensors of each."""

    def only_known(self, update: ClientUpdate) -> ClientUpdate:
        """The update with no other name in it than those on the lists."""
        self._check_shared(update.shared)
        return replace(
            update,
            counts=_renamed(update.counts, COUNTS),
            metrics=_renamed(update.metrics, self.metrics),
            scores=tuple(map(self._score, update.scores)),
            probes=_renamed(
                {name: tuple(map(self._score, scores)) for name, scores in update.probes.items()}, self.probes
            ),
        )

    def _score(self, score: WorldScore) -> WorldScore:
        return replace(score, world=self.worlds.get(score.world, OTHER), errors=known_errors(score.errors))

    def _check_shared(self, shared: Shared) -> None:
        """What is shared means something to others by its name only, so it cannot have another one."""
        for name, tensors in shared.items():
            if unknown := sorted(set(tensors) - self.shares.get(name, frozenset())):
                raise BadInput(
                    f"the plug-in that shares under '{name}' gives {len(unknown)} tensors that its class does not name: "
                    'list them in its attribute `gives`, such as gives = frozenset({"counts"}).'
                )


def known_errors(errors: Mapping[str, int]) -> dict[str, int]:
    """Counts of errors under the names of their classes that are known."""
    found: dict[str, int] = {}
    for name, count in errors.items():
        kind = known_kind(name)
        found[kind] = found.get(kind, 0) + count
    return found


def _renamed(values: Mapping[str, T], known: Collection[str]) -> dict[str, T]:
    """Of several that are not known, one is told."""
    return {name if name in known else OTHER: value for name, value in values.items()}
