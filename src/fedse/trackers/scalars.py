"""Which numbers events become, and over which round each is drawn: the same for every tracker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fedse.events import ClientFinished, EpisodesPlayed, Evaluated, Event, RoundFinished, RoundStarted

ByRound = Mapping[int, Mapping[str, float]]


class Scalars:
    """Success, learning and cost over rounds."""

    def __init__(self) -> None:
        self._tokens: Counter[str] = Counter()
        """Of the round that goes on: clients may play several times in it."""

    def of(self, event: Event) -> ByRound:
        """What is to be drawn once this has happened, under names like `learning/maze/loss`."""
        match event:
            case RoundStarted():
                self._tokens = Counter()
            case EpisodesPlayed():
                self._tokens.update(decoded=event.decoded, prefilled=event.prefilled)
            case ClientFinished():
                # What is measured in a round is the adapter of the round before.
                return {event.round - 1: _scores(event), event.round: _numbers(event)}
            case RoundFinished():
                tokens = {f"tokens/{name}": count for name, count in self._tokens.items()}
                told = {"round/seconds": event.seconds, "round/contributed": len(event.contributed)}
                return {event.round: {**tokens, **told}}
            case Evaluated():
                shares = {f"{event.split}/macro": event.macro, f"{event.split}/micro": event.micro}
                return {event.round: {name: share for name, share in shares.items() if share is not None}}
        return {}


def _scores(event: ClientFinished) -> dict[str, float]:
    return {
        f"validation/{event.client}/{score['world']}": score["successes"] / score["episodes"]
        for score in event.scores
        if score["episodes"]
    }


def _numbers(event: ClientFinished) -> dict[str, float]:
    learning = {f"learning/{event.client}/{name}": value for name, value in event.metrics.items()}
    return {**learning, **{f"experience/{event.client}/{name}": count for name, count in event.counts.items()}}
