"""A round of learning that looks at the policies of all layers, and may train that of an inner one
(`objectives/bottom_up.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedse.fitting.loop import Fitting
from fedse.networks.training.passes import Pass
from fedse.networks.training.token_packing import micro_batches
from fedse.objectives.bottom_up import LAYER_ENTROPIES, as_if_not_drawn, spread_out
from fedse.objectives.cases import Case, units_of
from fedse.stopwatch import during


class BottomUpFitting(Fitting):
    """One adapter's round. With `layer`, now, before and reference are all what that layer says."""

    def __init__(
        self,
        through: Pass,
        cases: Sequence[Case],
        context: int,
        *given: Any,
        layer: int | None,
        normed: bool,
        tokens_at_once: int,
        **settings: Any,
    ) -> None:
        explored = [case for case in cases if not case.replayed] or cases
        examples = [example for unit in spread_out(units_of(explored, context)) for example in unit.examples]
        with during("scoring"):
            found = [through.layer_entropies(part, 0, normed) for part in micro_batches(examples, 0, tokens_at_once)]
        tokens = sum(example.agent_tokens for example in examples)
        means = sum(part.sum(axis=1, dtype=float) for part in found) / tokens
        self._entropies = dict(zip(LAYER_ENTROPIES, map(float, means), strict=False))
        self._inner = layer is not None
        if layer is not None:
            through, cases = through.inner(layer, normed), [as_if_not_drawn(case) for case in cases]
        super().__init__(through, cases, context, *given, tokens_at_once=tokens_at_once, **settings)

    def metrics(self) -> dict[str, float]:
        told = super().metrics()
        if self._inner:
            # The surprise at tokens that another policy drew is no entropy.
            told.pop("entropy", None)
        return told | self._entropies
