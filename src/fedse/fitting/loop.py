"""The training loop behind every rule: batches, schedule, clipping, AdamW, and nothing that outlives the round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedse.networks.training.passes import Importance, Pass
from fedse.networks.training.soft_targets import LikelyTokens, SoftTargets, joined
from fedse.networks.training.token_packing import Example, micro_batches, opening_of
from fedse.networks.training.wanted import Asking, GradientWanted, ScoresWanted
from fedse.objectives.cases import Case, CreditedExample, Unit, group, units_of
from fedse.objectives.objective import (
    Objective,
    RefersToSome,
    Scored,
    Values,
    checked_weights,
)
from fedse.objectives.teaching import Teacher
from fedse.plugins import check_made
from fedse.stopwatch import during
from fedse.types import Adapter


class Fitting:
    """One adapter's round of learning. Several can go through the network together: each yields what it wants next.

    Trains what the vector of the pass holds. Without an objective every token of the agent counts alike, which is the mean
    likelihood of a batch; an objective costs a pass without gradient over each batch, and over what it refers to one at the
    beginning, which then serves the first step too. `start` is what the lesson begins with, and what the pass holds already.
    """

    def __init__(
        self,
        through: Pass,
        cases: Sequence[Case],
        context: int,
        key: int,
        objective: Objective | None = None,
        start: Adapter | None = None,
        teacher: Teacher | None = None,
        *,
        epochs: float,
        learning_rate: float,
        schedule: str,
        weight_decay: float,
        batch_size: int,
        tokens_at_once: int,
        max_grad_norm: float,
        proximal_mu: float = 0.0,
    ) -> None:
        units = units_of(cases, context)
        examples = [example for unit in units for example in unit.examples]
        random = np.random.Generator(np.random.Philox(key=key))
        self._through, self._vector = through, through.vector
        self._opening = self._shared_opening(examples)
        batches = self._drawn(units, epochs, batch_size, random)
        self._batches = [self._parts(chosen, tokens_at_once) for chosen in batches]
        through.expect([part for parts in self._batches for part in parts], self._opening)
        self._objective = objective
        self._before: dict[int, Values] = {}
        self._taught: dict[int, LikelyTokens] = {}
        self._told: list[Mapping[str, float]] = []
        self._start, self._teacher, self._tokens_at_once = start, teacher, tokens_at_once
        self._examples, self._explorer = examples, ""
        self._gaps: list[Values] = []
        if objective is not None:
            check_made("objective", objective, Objective)
        self._schedule, self._rate = schedule, learning_rate
        self._per_epoch = max(1, int(len(batches) / max(1.0, epochs)))
        self._max_norm, self._proximal_mu = max_grad_norm, proximal_mu
        self._optimiser = torch.optim.AdamW(
            [self._vector.values], lr=learning_rate, weight_decay=weight_decay, fused=True
        )
        self._broadcast = [self._vector.values.detach().clone()] if proximal_mu else []
        self._losses = torch.zeros(len(self._batches), device=self._vector.values.device)
        self._real = self._needed = self._computed = self._steps = 0

    def steps(self) -> Asking[None]:
        """All of them."""
        while (yield from self.step()):
            pass

    def step(self) -> Asking[bool]:
        """One step of the optimiser, if there is one left."""
        if self._steps == len(self._batches):
            return False
        if self._steps == 0 and self._objective is not None and self._start is not None:
            yield from self._refer(self._objective, self._start)
        for setting in self._optimiser.param_groups:
            setting["lr"] = self._rate * _factor(self._schedule, self._steps / len(self._batches))
        self._vector.gradient.zero_()
        yield from self._add_gradient(self._batches[self._steps])
        with during("optimiser"):
            pull_back([self._vector.values], self._broadcast, self._proximal_mu)
            self._limit()
            self._optimiser.step()
        self._steps += 1
        return True

    def _refer(self, objective: Objective, start: Adapter) -> Asking[None]:
        """What the objective compares with, under the adapter with which the lesson begins and under a teacher's."""
        self._explorer = start.digest()
        compared = (
            [example for example in self._examples if objective.refers_to(example, _drew(self._explorer, example))]
            if isinstance(objective, RefersToSome)
            else self._examples
        )
        self._before = yield from self._now(list(micro_batches(compared, self._opening, self._tokens_at_once)))
        teacher = self._teacher
        if teacher is not None and (taught := [example for example in self._examples if not example.replayed]):
            self._through.begin(replace(teacher.adapter, frozen=start.frozen))
            parts = micro_batches(taught, self._opening, self._tokens_at_once)
            self._taught = {id(example): told for part in parts for example, told in self._told_of(part, teacher)}
            self._through.begin(start)
        self._gaps = self._gaps_of(self._examples, self._before)

    def _shared_opening(self, examples: Sequence[CreditedExample]) -> int:
        """Tokens that all examples begin with, and that are computed once for those that go through together."""
        return opening_of(examples) if self._through.shares_opening else 0

    def _drawn(
        self, units: Sequence[Unit], epochs: float, batch_size: int, random: np.random.Generator
    ) -> list[list[Unit]]:
        """What each step is made of."""
        return [chosen for share in _passes(epochs) for chosen in _first(group(units, batch_size, random), share)]

    def _parts(self, chosen: Sequence[Unit], tokens_at_once: int) -> list[list[CreditedExample]]:
        """What of a step goes through the network at once."""
        examples = [example for unit in chosen for example in unit.examples]
        return list(micro_batches(examples, self._opening, tokens_at_once))

    def _limit(self) -> None:
        torch.nn.utils.clip_grad_norm_([self._vector.values], self._max_norm)

    def _add_gradient(self, parts: Sequence[Sequence[CreditedExample]]) -> Asking[None]:
        if self._objective is None:
            importance = 1.0 / sum(example.agent_tokens for part in parts for example in part)
            for part in parts:
                # On the device: reading each number would make the host wait for the GPU.
                self._losses[self._steps] += yield from self._pass(part, importance)
            return
        chosen = [example for part in parts for example in part]
        # Nothing has changed before the first step.
        known = self._before if self._steps == 0 else {}
        missing = [[example for example in part if id(example) not in known] for part in parts]
        now = {**known, **(yield from self._now([part for part in missing if part]))}
        if self._steps == 0:
            self._gaps += self._gaps_of([example for part in missing for example in part], now)
        batch = [
            Scored(example, now[id(example)], self._reference(example, now), self._taught.get(id(example)))
            for example in chosen
        ]
        weighed = checked_weights(self._objective, batch, self._objective.weigh(batch))
        self._losses[self._steps] = weighed.loss
        self._told.append(weighed.told)
        weights, soft = iter(weighed.weights), iter(weighed.soft)
        for part in parts:
            own = np.concatenate([next(weights) for _ in part])
            others = joined([next(soft) for _ in part]) if weighed.soft else None
            loss = yield from self._pass(part, own.astype(np.float32), others)
            if others is not None:
                # What the agent's own tokens have of it is in the rule's loss.
                self._losses[self._steps] += loss + own @ np.concatenate([now[id(example)] for example in part])

    def _pass(
        self, part: Sequence[Example], importance: Importance, soft: SoftTargets | None = None
    ) -> Asking[torch.Tensor]:
        loss: torch.Tensor
        if soft is None:
            loss, tokens = yield GradientWanted(self._through, part, self._opening, importance)
        else:
            loss, tokens = self._through.add_gradient(part, self._opening, importance, soft)
        self._computed += tokens
        self._real += sum(map(len, part))
        self._needed += self._opening + sum(len(example) - self._opening for example in part)
        return loss

    def _reference(self, example: CreditedExample, now: Mapping[int, Values]) -> Values:
        drawn = now[id(example)] if example.drawn is None else example.drawn
        return self._before.get(id(example), drawn)

    def _gaps_of(self, examples: Sequence[CreditedExample], found: Mapping[int, Values]) -> list[Values]:
        """How far apart sampler and learner are, of what the adapter of the lesson's beginning drew."""
        return [
            np.abs(found[id(example)] - example.drawn)
            for example in examples
            if id(example) in found and example.drawn is not None and _drew(self._explorer, example)
        ]

    def _now(self, parts: Sequence[Sequence[Example]]) -> Asking[dict[int, Values]]:
        """Log-probabilities of each example's tokens."""
        found: dict[int, Values] = {}
        for part in parts:
            scores = (yield ScoresWanted(self._through, part, self._opening)).astype(np.float64)
            ends = np.cumsum([example.agent_tokens for example in part])
            found |= zip(map(id, part), np.split(scores, ends[:-1]), strict=True)
        return found

    def _told_of(self, part: Sequence[Example], teacher: Teacher) -> Iterator[tuple[Example, LikelyTokens]]:
        with during("scoring"):
            found = self._through.likely_tokens(part, self._opening, teacher.top_k)
        ends = np.cumsum([example.agent_tokens for example in part])[:-1]
        pieces = zip(np.split(found.ids, ends), np.split(found.log_probs, ends), strict=True)
        return zip(part, (LikelyTokens(*piece) for piece in pieces), strict=True)

    def metrics(self) -> dict[str, float]:
        per_epoch = self._per_epoch
        with during("transfer"):
            last, first = float(self._losses[-per_epoch:].mean()), float(self._losses[:per_epoch].mean())
        return {
            "loss": last,
            "first_loss": first,
            "steps": float(len(self._losses)),
            "tokens": float(self._real),
            "padded_share": (self._computed - self._needed) / self._computed,
            "shared_share": (self._real - self._needed) / self._real,
            **{
                name: float(np.mean([told[name] for told in self._told if name in told]))
                for name in dict.fromkeys(name for told in self._told for name in told)
            },
            **({"sampler_gap": float(np.concatenate(self._gaps).mean())} if self._gaps else {}),
        }


def _drew(explorer: str, example: CreditedExample) -> bool:
    """Whether this adapter did, with probabilities that are stored."""
    return example.drawn is not None and example.explorer == explorer


def _passes(epochs: float) -> list[float]:
    """Each pass as the share of the examples that it goes through.

    >>> _passes(2), _passes(0.4), _passes(2.5)
    ([1.0, 1.0], [0.4], [1.0, 1.0, 0.5])
    """
    whole = int(epochs)
    return [1.0] * whole + ([epochs - whole] if epochs > whole else [])


def _first(batches: Iterable[list[Unit]], share: float) -> list[list[Unit]]:
    """A share of the batches, at least one."""
    chosen = list(batches)
    return chosen[: max(1, round(share * len(chosen)))]


@torch.no_grad()
def pull_back(parameters: Sequence[Any], broadcast: Sequence[torch.Tensor], proximal: float) -> None:
    """Add the gradient of FedProx's proximal / 2 * || parameters - broadcast ||^2, if there is anything to keep to."""
    for parameter, anchor in zip(parameters, broadcast, strict=False):
        parameter.grad.add_(parameter - anchor, alpha=proximal)


def _factor(schedule: str, progress: float) -> float:
    return 0.5 * (1.0 + float(np.cos(np.pi * progress))) if schedule == "cosine" else 1.0
