"""MLflow: success, learning and cost over rounds, in an SQLite file of your own that many runs can share.

`mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db` shows it. Needs the extra `mlflow`.
"""

from __future__ import annotations

import logging
import time
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from fedse.events import Event
from fedse.plugins import FilePath, PluginOptions
from fedse.trackers.outside import identity, require
from fedse.trackers.scalars import Scalars

DATABASE = "mlflow.db"
_TAG = "fedse.run"


class MlflowOptions(PluginOptions):
    """Where it is written."""

    experiment: str = Field(default="fedse", min_length=1)
    """MLflow's experiment that the run is shown in, under the run's own name."""
    folder: FilePath | None = None
    """Folder for `mlflow.db`; a folder `mlflow` in the run's when not set. One folder for many runs shows them together."""


class Mlflow:
    """Scalars for MLflow."""

    Options = MlflowOptions

    def __init__(self, run: Path, experiment: str = "fedse", folder: Path | None = None) -> None:
        require("mlflow", "mlflow")
        self._scalars = Scalars()
        self._name, self._experiment = run.name, experiment
        self._identity = identity(run)
        self._folder = (folder.expanduser() if folder else run / "mlflow").absolute()

    @cached_property
    def _client(self) -> Any:
        """Made when there is something to write: a run that is refused leaves nothing behind."""
        from mlflow import MlflowClient

        # It would say between our lines that it makes its tables.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        self._folder.mkdir(parents=True, exist_ok=True)
        return MlflowClient(tracking_uri=f"sqlite:///{self._folder / DATABASE}")

    @cached_property
    def _run(self) -> str:
        """Id of the run there; one that goes on is the same."""
        known = self._client.get_experiment_by_name(self._experiment)
        place = (self._folder / "artifacts").as_uri()
        experiment = known.experiment_id if known else self._client.create_experiment(self._experiment, place)
        wanted = f"tags.`{_TAG}` = '{self._identity}'"
        for found in self._client.search_runs([experiment], wanted, max_results=1):
            return str(found.info.run_id)
        made = self._client.create_run(experiment, run_name=self._name, tags={_TAG: self._identity})
        return str(made.info.run_id)

    def record(self, event: Event) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        numbers = [
            Metric(name, float(value), now, round)
            for round, values in self._scalars.of(event).items()
            for name, value in values.items()
        ]
        if numbers:
            self._client.log_batch(self._run, metrics=numbers)

    def close(self) -> None:
        if "_run" in vars(self):
            self._client.set_terminated(self._run)
