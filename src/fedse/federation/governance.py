"""How far a site is trusted, by what it sent: a soft label for each update, after SWARM's governance of agents.

    v = mean of what is known of   gain     what the site says its update gains on its own tasks   (counts twice)
                                   length   1 where its change is as long as the others', -1 at four times or a quarter
                                   cosine   with the mean direction of the others, as a multiple of what is usual
                                   refused  minus twice the share of its updates that were refused so far
    p = 1 / (1 + exp(-3 v))
    trust = decay * trust before + (1 - decay) * p

An update of a site whose trust is below `breaker` is left out of the round; p is found all the same, so the site can come
back. A share of the sites is audited in every round: they are judged by p alone, so that a good name hides nothing. Whom, is
drawn by what all sites have sent, which no site knows. If nobody is left out, the round is what it would be without;
where all would be, nobody is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log2
from statistics import fmean, median_low
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from fedse.adapters.packing import length
from fedse.aggregators.rule import pieces
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.runs.reading import RunView
from fedse.seeds import stream, uniform
from fedse.types import Vector, WorldScore

ENOUGH = 3
"""Updates of a round, at least: of two that differ nobody can tell which is odd."""
STEEP = 3.0
FULL_GAIN = 0.2
"""A gain of so many of its tasks speaks for an update as much as anything can."""


class GovernanceOptions(PluginOptions):
    """Whom to leave out for what they send."""

    breaker: float = Field(default=0.4, gt=0, lt=1)
    """A site that is trusted less than this is left out of the round."""
    audit_share: float = Field(default=0.2, ge=0, le=1)
    """Share of the sites, drawn anew in every round, that are judged by this round alone."""
    decay: float = Field(default=0.5, ge=0, lt=1)
    """How much of its trust a site keeps from round to round; the rest is what it sends."""


@dataclass(frozen=True)
class Standing:
    """What is known of a site from earlier rounds."""

    trust: float | None = None
    refused: int = 0
    rounds: int = 0


class Label(NamedTuple):
    """What is made of an update."""

    p: float
    trust: float
    audited: bool
    known: Mapping[str, float]
    """What speaks for it, each from -1 to 1."""

    @property
    def decisive(self) -> float:
        return self.p if self.audited else self.trust


@dataclass
class Governance:
    """Judges the updates of a round."""

    options: GovernanceOptions
    standings: Mapping[str, Standing]
    labels: dict[str, Label] = field(default_factory=dict)

    def refused(self, broadcast: Vector, updates: Sequence[StoredUpdate], gains: Mapping[str, float]) -> dict[str, str]:
        """Whom to leave out, each with the reason."""
        if len(updates) < ENOUGH:
            return {}
        norms, cosines, key = _compared(broadcast, updates)
        usual = float(np.median(np.abs(cosines))) or 1.0
        for index, update in enumerate(updates):
            standing = self.standings.get(update.client, Standing())
            ratio = norms[index] / median_low(np.delete(norms, index).tolist())
            known = {
                "length": 1 - min(2.0, abs(log2(ratio))),
                "cosine": _within(float(cosines[index]) / usual),
                "refused": -min(1.0, 2 * standing.refused / standing.rounds) if standing.rounds else 0.0,
            }
            if update.client in gains:
                known["gain"] = _within(gains[update.client] / FULL_GAIN)
            weights = {name: 2.0 if name == "gain" else 1.0 for name in known}
            p = _soft(sum(weights[name] * value for name, value in known.items()) / sum(weights.values()))
            kept = self.options.decay if standing.trust is not None else 0.0
            trust = kept * (standing.trust or 0.0) + (1 - kept) * p
            audited = uniform(stream("audit", key, update.client), 0) < self.options.audit_share
            self.labels[update.client] = Label(p, trust, audited, known)
        doubted = {
            client: f"it is trusted to {label.decisive:.2f}, less than checks.governance.breaker = {self.options.breaker:g}"
            for client, label in self.labels.items()
            if label.decisive < self.options.breaker
        }
        # Where nobody is trusted, there is nobody to tell who is odd.
        return doubted if len(doubted) < len(updates) else {}

    def told(self, left_out: Iterable[str]) -> dict[str, Any]:
        """For the report. Toxicity is the mean of 1 - p over what was accepted, the quality gap the difference of mean p."""
        out = set(left_out) & self.labels.keys()
        accepted = [label.p for client, label in self.labels.items() if client not in out]
        rejected = [self.labels[client].p for client in sorted(out)]
        return {
            "sites": {client: label._asdict() for client, label in sorted(self.labels.items())},
            "toxicity": fmean(1 - p for p in accepted) if accepted else None,
            "quality_gap": fmean(accepted) - fmean(rejected) if accepted and rejected else None,
        }


def standings(run: RunView, number: int) -> dict[str, Standing]:
    """What the reports up to a round tell of each site."""
    found: dict[str, Standing] = {}
    for earlier in range(1, number + 1):
        report = run.report(earlier) or {}
        diagnostics = report.get("diagnostics", {})
        sites = diagnostics.get("governance", {}).get("sites", {})
        # Rounds of too few updates to be judged have no labels, and count like all others.
        for client in sites.keys() | report.get("refused", {}).keys() | set(diagnostics.get("contributed", ())):
            before = found.get(client, Standing())
            found[client] = Standing(
                sites[client]["trust"] if client in sites else before.trust,
                before.refused + (client in report.get("refused", {})),
                before.rounds + 1,
            )
    return found


def gain(after: Sequence[WorldScore], before: Sequence[WorldScore]) -> float | None:
    """What a site says its update gains, as the mean over its worlds; None where it does not tell."""
    shares = [
        {score.world: score.successes / score.episodes for score in scores if score.episodes}
        for scores in (after, before)
    ]
    both = sorted(shares[0].keys() & shares[1].keys())
    return fmean(shares[0][world] - shares[1][world] for world in both) if both else None


def _compared(broadcast: Vector, updates: Sequence[StoredUpdate]) -> tuple[Vector, Vector, int]:
    """Norms of changes, the cosine of each with the mean direction of the others, and a number that depends on them all."""
    products, content = np.zeros((len(updates), len(updates))), hashlib.sha256()
    for start, stop in pieces(length(updates[0].layout), len(updates)):
        values = np.stack([update.read(start, stop) for update in updates])
        content.update(values.tobytes())
        changes = values.astype(np.float64) - broadcast[start:stop]
        products += changes @ changes.T
    norms = np.sqrt(np.diag(products))
    # Directions, not changes: the longest would speak for all others.
    directions = products / np.outer(norms, norms)
    cosines = []
    for index in range(len(updates)):
        others = np.delete(np.arange(len(updates)), index)
        size = np.sqrt(max(float(directions[np.ix_(others, others)].sum()), 1e-12))
        cosines.append(float(directions[index, others].sum()) / size)
    return norms, np.array(cosines), int.from_bytes(content.digest()[:8], "little")


def _within(value: float) -> float:
    return max(-1.0, min(1.0, value))


def _soft(value: float) -> float:
    return 1 / (1 + exp(-STEEP * value))
