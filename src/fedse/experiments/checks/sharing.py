"""What does not go with who learns and who shares."""

from __future__ import annotations

from fedse.experiments.keys import ExperimentKeys


def check_who_learns(experiment: ExperimentKeys) -> None:
    """Refuse sites that would have nobody to learn from or to share with. Raises `ValueError`."""
    measuring = experiment.measuring
    if experiment.learning and len(measuring) == len(experiment.clients):
        raise ValueError("every client has `learns: false`, so nobody would learn: let one of them learn")
    if experiment.learning and experiment.sharing == "none" and measuring:
        raise ValueError(f"client '{measuring[0]}' has `learns: false`, and with `sharing: none` nobody shares with it")
    if experiment.sharing == "none" and experiment.pooled:
        raise ValueError("`pooled: true` leaves one client with nobody to share with: leave `sharing` out")


def check_connection(experiment: ExperimentKeys) -> None:
    """Refuse to connect clients that send nothing. Raises `ValueError`."""
    if experiment.sharing == "none" and not (experiment.in_process or experiment.engine.foreign):
        raise ValueError("clients that share nothing need no connection: use `engine: local` with `sharing: none`")


def check_governance(experiment: ExperimentKeys) -> None:
    """Refuse to compare updates that nobody sends. Raises `ValueError`."""
    if experiment.sharing == "none" and experiment.checks.governance is not None:
        raise ValueError("with `sharing: none` there are no updates to compare: leave `checks.governance` out")
