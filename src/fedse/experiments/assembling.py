"""Components become a federation that can run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from fedse.adapters.plan import plan_of
from fedse.aggregators.rule import SUM_AND_SQUARES
from fedse.clients.client import Client
from fedse.engines.local import LocalEngine
from fedse.errors import (
    BadAggregate,
    CannotWrite,
    GpuFull,
    NothingTrained,
    Stopped,
    SwapFailed,
    TooFewClients,
    TooManyErrors,
)
from fedse.evaluation.curves import curves, macro
from fedse.evaluation.plot import draw_run
from fedse.events import RunStopped
from fedse.experiments.beginning import Beginning
from fedse.experiments.building import build_household
from fedse.experiments.components import Components, build_components, shared_players
from fedse.experiments.known_before import expected_of
from fedse.experiments.options import Experiment
from fedse.experiments.secure_sums import make_keys
from fedse.federation.exchange import Summing
from fedse.federation.refusals import refusals_of
from fedse.federation.server import Server
from fedse.federation.sites import Sites
from fedse.plugins import build, capability
from fedse.privacy.noise import KEY_FILE, NoiseKey
from fedse.protocols import Closes, Engine, Tracker
from fedse.runs import provenance
from fedse.runs.folder import RunFolder
from fedse.runs.reading import RunView
from fedse.runs.trackers import Trackers
from fedse.types import Adapter


@dataclass(frozen=True, repr=False)
class RunResult:
    """Where a finished run lies and what it reached."""

    folder: Path
    adapter: Adapter
    """The shared one. Where clients share nothing it is the beginning, and theirs are in clients/NAME/adapters."""
    validation: Mapping[str, Any]
    test: Mapping[str, Any] | None
    """None when the experiment asks for no test."""
    picture: Path | None

    @cached_property
    def curves(self) -> dict[str, dict[int, float]]:
        """Of each client and world, success on validation tasks by the rounds behind the adapter; 0 is the beginning."""
        found = curves(RunView.existing(self.folder))
        return {
            name: {row["adapter"]: row["success"] for row in rows if row["success"] is not None}
            for name, rows in found.items()
        }

    @cached_property
    def curve(self) -> dict[int, float]:
        """Macro success by the rounds behind the adapter: the mean over the same worlds throughout, those that were measured
        at the beginning. Rounds in which one of them was not measured are left out."""
        return macro(curves(RunView.existing(self.folder)))

    @cached_property
    def warnings(self) -> list[str]:
        """What is wrong with a run that came to its end: updates that were refused in all rounds, of a site or of all."""
        return refusals_of(RunView.existing(self.folder))

    def __repr__(self) -> str:
        reached = [f"macro {100 * value:.1f} % {when}" for when, value in self._ends()]
        warned = "; it has `.warnings`" if self.warnings else ""
        return f"RunResult({self.folder}: {', '.join(reached) or 'nothing was measured'}{warned})"

    def _ends(self) -> list[tuple[str, float]]:
        points = list(self.curve.items())
        shown = points if len(points) < 2 else [points[0], points[-1]]
        on_test = [] if self.test is None or self.test["macro"] is None else [("on the test", self.test["macro"])]
        return [(f"after round {number}" if number else "before any round", value) for number, value in shown] + on_test


@dataclass(frozen=True)
class Federation:
    """A run with everything that is needed to go on with it. Leaving it, as a context, gives the run's folder back."""

    experiment: Experiment
    run: RunFolder
    engine: Engine
    server: Server
    make_clients: Callable[[], Sequence[Client]]
    initial_adapter: Callable[[], Adapter]
    components: Components | None = None
    """What the clients share; None where they are on other machines."""

    @property
    def clients(self) -> Sequence[Client]:
        """The clients, in this process."""
        return self.make_clients()

    def finish(self, deadline: float | None = None) -> RunResult:
        """Play the rounds that are left and the closing evaluations. Raises `Stopped` past the deadline."""
        try:
            return self._finish(deadline)
        except BaseException as error:
            # A log that cannot be written must not hide why the run stopped.
            with suppress(Exception):
                self.server.tracker.record(RunStopped(why=_why(error)))
            raise

    def _finish(self, deadline: float | None) -> RunResult:
        try:
            state = self.server.federate(self.experiment.rounds_to_play, self.initial_adapter, deadline)
            results: dict[str, Any] = {}
            for split in self.experiment.closing_splits:
                if deadline is not None and time.monotonic() >= deadline:
                    raise Stopped
                results[split] = self.server.evaluate_once(state.round, split)
        except Stopped:
            draw_run(self.run)
            raise
        picture = draw_run(self.run)
        return RunResult(self.run.path, state.adapter, results["validation"], results.get("test"), picture)

    def close(self) -> None:
        for part in (self.engine, self.server.tracker):
            if isinstance(part, Closes):
                part.close()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.run.unlock()


MakeEngine = Callable[[Sites], Engine]


_QUOTING_NOBODY = (
    BadAggregate,
    CannotWrite,
    GpuFull,
    NothingTrained,
    SwapFailed,
    TooFewClients,
    TooManyErrors,
)


def _why(error: BaseException) -> str:
    """For whoever looks at the run later, trackers included: no text that may quote an agent, a world or a server."""
    go_on = "the command that started the run goes on with it."
    match error:
        case Stopped():
            return f"its time was over; {go_on}"
        case KeyboardInterrupt() | SystemExit():
            return f"it was interrupted; {go_on}"
        case _ if isinstance(error, _QUOTING_NOBODY):
            return str(error)
    return f"{type(error).__name__}; what it said was shown where the run was started."


def assemble(
    experiment: Experiment,
    components: Components | None,
    folder: RunFolder,
    tracker: Tracker,
    beginning: Beginning,
    make_engine: MakeEngine | None = None,
) -> Federation:
    """Connect the components. The caller holds the run's lock.

    Without components there is the server alone. Its clients are on other machines, where `make_engine` reaches them, and
    the model is built only if the run has no adapter yet.
    """
    aggregator = _aggregator(experiment, components, folder)
    summing = _summing(experiment, aggregator)
    provenance.tell(tracker, components.model if components else None, at_sites=components is None)
    sites = Sites(
        names=tuple(sorted(experiment.holdings)),
        run=experiment.name,
        terms=experiment.terms,
        plan=plan_of(aggregator),
        tracker=tracker,
        expected=expected_of(experiment),
    )
    if components is not None:
        if summing is not None:
            # Before other processes look for them.
            make_keys(summing.learners, folder)
        sites = replace(
            sites,
            here=cache(lambda: build_household(experiment, components, folder)),
            elsewhere=partial(one_site, experiment, folder.path.resolve()),
        )
    engine = build("engine", experiment.engine, sites) if make_engine is None else make_engine(sites)
    server = Server(
        folder,
        engine,
        aggregator,
        experiment.checks,
        experiment.limits,
        tracker,
        participation=experiment.participation,
        seed=experiment.seed,
        shares=frozenset(experiment.shares),
        joins={name: options.joins for name, options in experiment.clients.items()},
        mean_of_last=experiment.evaluation.mean_of_last,
        library=experiment.has_library,
        summing=summing,
        promotion=experiment.promotion,
        learners=experiment.learners,
    )
    return Federation(experiment, folder, engine, server, lambda: sites.here().clients, beginning.adapter, components)


def _aggregator(experiment: Experiment, components: Components | None, folder: RunFolder) -> Any:
    """One by which the server itself puts noise on the mean has the run's secret, and the number of sites."""
    aggregator = build("aggregator", experiment.aggregator) if components is None else components.aggregator
    if experiment.has_noisy_mean and not capability(experiment.aggregator, "noise_at_sites"):
        aggregator.key = NoiseKey(folder.path / KEY_FILE, nothing_left=not folder.last_round())
        aggregator.sites = experiment.learners_asked
    return aggregator


def _summing(experiment: Experiment, aggregator: Any) -> Summing | None:
    options = experiment.sending.secure_sum
    if options is None:
        return None
    squares = SUM_AND_SQUARES in getattr(aggregator, "promises", ())
    return Summing(options, frozenset(experiment.learners), squares, capability(experiment.mix, "needs_plain_mean"))


def one_site(experiment: Experiment, folder: Path, name: str) -> Engine:
    """An engine in which one client of the experiment is the only one, for another process.

    The base model is loaded once in a process, however many clients it serves one after another.
    """
    held = {origin.client: experiment.clients[origin.client] for origin in experiment.holdings[name].values()}
    alone = experiment.model_copy(update={"clients": held})
    components = build_components(alone, shared_players)
    sites = Sites(
        names=(name,),
        run=alone.name,
        terms=alone.terms,
        plan=components.plan,
        tracker=Trackers([]),
        here=lambda: build_household(alone, components, RunFolder(folder), name),
    )
    return LocalEngine(sites)
