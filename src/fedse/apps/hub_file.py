"""The experiment as the hub sees it: the sites by name, and nothing of their worlds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from fedse.errors import BadInput
from fedse.experiment import Experiment
from fedse.experiment_file import explain, override, read_yaml

ELSEWHERE = {"name": "fedse.apps.elsewhere:Elsewhere"}


def load_for_hub(path: Path, settings: Sequence[str] = ()) -> Experiment:
    """Read an experiment file without its worlds: they belong to the sites, and need not be installed at the hub."""
    content, places = read_yaml(path)
    override(content, settings, places)
    clients = content.get("clients")
    if isinstance(clients, dict):
        content["clients"] = {name: {"worlds": [ELSEWHERE]} for name in clients}
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        raise BadInput(explain(error, Experiment, places)) from error
