"""The experiment as the hub sees it: the sites by name, and nothing of their worlds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedse.errors import BadInput
from fedse.experiments.client_options import numbered
from fedse.experiments.file import override
from fedse.experiments.options import Experiment, validated
from fedse.storage.strict_yaml import read_yaml

ELSEWHERE = {"name": "fedse.apps.elsewhere:Elsewhere"}


def load_for_hub(path: Path, settings: Sequence[str] = ()) -> Experiment:
    """Read an experiment file without its worlds: they belong to the sites, and need not be installed at the hub."""
    experiment = load_without_worlds(path, settings)
    refuse_what_needs_one_machine(path, experiment)
    return experiment


def load_without_worlds(path: Path, settings: Sequence[str] = (), but: str = "") -> Experiment:
    """Read an experiment file with `Elsewhere` in place of all worlds, `but` those of one site: what others call their
    worlds need not be known here, and they may leave them out."""
    content, places = read_yaml(path)
    override(content, settings, places)
    clients = content.get("clients")
    if isinstance(clients, dict):
        content["clients"] = {
            name: options
            if name == but and isinstance(options, dict) and "worlds" in options
            else {**(options if isinstance(options, dict) else {}), "worlds": [ELSEWHERE]}
            for name, options in clients.items()
        }
    return validated(content, places)


def told_worlds_of(path: Path, settings: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """The labels of each site's worlds, as far as the file tells them: names under which a site may speak of its worlds."""
    content, places = read_yaml(path)
    override(content, settings, places)
    clients = content.get("clients")
    found: dict[str, tuple[str, ...]] = {}
    for client, options in clients.items() if isinstance(clients, dict) else ():
        worlds = options.get("worlds") if isinstance(options, dict) else None
        names = [item.get("name") if isinstance(item, dict) else item for item in worlds or ()]
        if names:
            found[str(client)] = tuple(numbered(str(name).rsplit(":", 1)[-1] for name in names))
    return found


def refuse_what_needs_one_machine(path: Path, experiment: Experiment) -> None:
    """Sites meet in the adapter that they share, and keep their worlds to themselves."""
    if experiment.sharing == "none" or experiment.pooled:
        switch = "sharing: none" if experiment.sharing == "none" else "pooled: true"
        raise BadInput(
            f"{path}: `{switch}` (method: {experiment.method or 'without a name'}) leaves sites on several machines nothing "
            "to do together: run it with `fedse run`."
        )
