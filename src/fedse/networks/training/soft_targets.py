"""Targets that are distributions: beside each of the agent's tokens, others that may stand in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedse.networks.training.token_packing import Ids


@dataclass(frozen=True)
class LikelyTokens:
    """The likeliest tokens in the place of each of the agent's: places x tokens, the likeliest first."""

    ids: Ids
    log_probs: npt.NDArray[np.float32]


@dataclass(frozen=True)
class SoftTargets:
    """Tokens in the place of each of the agent's, and the factor of each one's negative log-likelihood: places x tokens.

    With a distribution times a factor this is the factor times the cross-entropy to it.
    """

    ids: Ids
    weights: npt.NDArray[np.float32]

    @classmethod
    def none(cls, places: int) -> SoftTargets:
        """No other than the agent's own."""
        return cls(np.zeros((places, 0), dtype=np.int64), np.zeros((places, 0), dtype=np.float32))


def joined(targets: Sequence[SoftTargets]) -> SoftTargets | None:
    """Of one example after another, if there are any. Where some have fewer tokens in a place, tokens without weight fill
    up."""
    widest = max((item.ids.shape[1] for item in targets), default=0)
    if not widest:
        return None
    missing = [((0, 0), (0, widest - item.ids.shape[1])) for item in targets]
    return SoftTargets(
        np.concatenate([np.pad(item.ids, room) for item, room in zip(targets, missing, strict=True)]),
        np.concatenate([np.pad(item.weights, room) for item, room in zip(targets, missing, strict=True)]),
    )
