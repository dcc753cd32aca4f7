"""An experiment file as an object that is checked as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator

from fedse.errors import BadInput
from fedse.experiments.checks.beginnings import check_beginnings
from fedse.experiments.checks.lessons import check_lessons
from fedse.experiments.checks.measuring import check_learned_by_world, check_mean_of_last, check_probes
from fedse.experiments.checks.mixing import check_mix
from fedse.experiments.checks.private_learning import check_private_learning
from fedse.experiments.checks.private_sites import check_private_sites
from fedse.experiments.checks.promotion import check_promotion
from fedse.experiments.checks.secure_sum import check_secure_sum
from fedse.experiments.checks.sharing import check_connection, check_governance, check_who_learns
from fedse.experiments.checks.taking_part import check_newcomers, check_participation
from fedse.experiments.file import PLACES, explain, override
from fedse.experiments.keys import ExperimentKeys
from fedse.experiments.methods import expand
from fedse.experiments.old_keys import with_new_names
from fedse.experiments.world_settings import with_world_settings
from fedse.plugins import STORED
from fedse.storage.strict_yaml import KeyPath, read_yaml

CHECKS: tuple[Callable[[ExperimentKeys], None], ...] = (
    check_who_learns,
    check_mix,
    check_connection,
    check_probes,
    check_newcomers,
    check_mean_of_last,
    check_secure_sum,
    check_lessons,
    check_private_learning,
    check_private_sites,
    check_promotion,
    check_governance,
    check_learned_by_world,
    check_participation,
    check_beginnings,
)
"""What goes together, in the order in which it is told: of several problems the first one."""
FROM_RUN = "from_run"
"""In the context of validation: a run was begun with it, maybe by a fedse that knew less of what goes together. What came
out can be looked at and measured; only who goes on with it is told."""


class Experiment(ExperimentKeys):
    """A whole experiment. Where the paper names a value, it is the default."""

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, content: Any) -> Any:
        return expand(with_world_settings(content)) if isinstance(content, Mapping) else content

    @model_validator(mode="after")
    def _goes_together(self, info: ValidationInfo) -> Experiment:
        for check in () if (info.context or {}).get(FROM_RUN) else CHECKS:
            check(self)
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _in_sentences(
        cls, content: Any, handler: ModelWrapValidatorHandler[Experiment], info: ValidationInfo
    ) -> Experiment:
        """The last of the validators, so that it hears of what all of them found."""
        try:
            return handler(content)
        except ValidationError as error:
            raise BadInput(explain(error, cls, (info.context or {}).get(PLACES, {(): cls.__name__}))) from error


def load_experiment(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """Read a file, apply `a.b=c` settings, check everything. Raises `BadInput` with all problems it finds."""
    given = Path(path)
    if given.name == "experiment.yaml" and (given.parent / "manifest.json").is_file():
        return validated(*_stored(given.parent, settings))
    content, places = read_yaml(given)
    if "experiment" in content and "clients" not in content:
        raise BadInput(
            f"{given} is a sweep, which `fedse sweep {given}` runs: an experiment has `model`, `clients` and other keys of "
            "its own (docs/reference.md)."
        )
    override(content, settings, places)
    return validated(content, places)


def experiment_of(run: Path, settings: Sequence[str] = (), stored: bool = False) -> Experiment:
    """What a run folder holds, to look at or to measure; it may be older than the names of today's keys, and than what is
    known today of what goes together.

    With `stored` the classes of its authors' own plug-ins need not be at hand.
    """
    content, places = _stored(run, settings)
    return Experiment.model_validate(content, context={STORED: stored, FROM_RUN: True, PLACES: places})


def _stored(run: Path, settings: Sequence[str]) -> tuple[dict[str, Any], Mapping[KeyPath, str]]:
    content, places = read_yaml(run / "experiment.yaml")
    content = with_new_names(content)
    override(content, settings, places)
    return content, places


def validated(content: Mapping[str, Any], places: Mapping[KeyPath, str]) -> Experiment:
    """The experiment that a file's content describes."""
    return Experiment.model_validate(content, context={PLACES: places})
