"""A site's own file: who it is, which hub it works with, and what it keeps for itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from fedse.apps.hub_file import refuse_what_needs_one_machine
from fedse.errors import BadInput
from fedse.experiment_file import explain
from fedse.experiment_options import ClientOptions, Experiment, load_experiment
from fedse.plugins import FilePath, Part, PartOf, PluginOptions
from fedse.strict_yaml import read_yaml


class SiteOptions(PluginOptions):
    """Keys of SITE.yaml. Paths are relative to the file."""

    name: str
    """Name of the site, as the hub knows it."""
    hub: str = Field(pattern=r"^[^\s:]+:\d{1,5}$")
    """Host and port of the hub."""
    authority: FilePath | None = None
    """Certificate of the hub's authority: a hub that cannot show a certificate of it is not talked to."""
    key: FilePath | None = None
    """The site's secret key, by which the hub knows it."""
    insecure: bool = False
    """No TLS and no keys, for a hub that was made so; it takes the place of `authority` and `key`."""
    experiment: FilePath
    """The experiment, the same file as the hub's; the site does nothing that is not in it."""
    folder: FilePath = Path("data")
    """Where buffer, journal and ledger lie, for each run."""
    worlds: list[Annotated[Part, PartOf("world")]] | None = Field(default=None, min_length=1)
    """The site's worlds; by default those that the experiment names for it."""
    max_megabytes: float | None = Field(default=None, gt=0)
    """Refuse to send more than this in one update, whatever the experiment allows."""
    settings: list[str] = Field(default_factory=list)
    """Changes for this machine, such as model.device=cuda, as after --set. They cannot change what is sent."""


@dataclass(frozen=True)
class Site:
    options: SiteOptions
    experiment: Experiment
    terms: str
    """Digest of the experiment before this machine's own settings; the hub's must be the same."""

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def run_folder(self) -> Path:
        return self.options.folder / self.experiment.name


def load_site(path: Path) -> Site:
    content, places = read_yaml(path)
    try:
        options = SiteOptions.model_validate(content)
    except ValidationError as error:
        raise BadInput(explain(error, SiteOptions, places)) from error
    here = path.resolve().parent
    given = {name: getattr(options, name) for name in ("authority", "key", "experiment", "folder")}
    files = {name: here / value for name, value in given.items() if value is not None}
    options = options.model_copy(update=files)
    for name in ("authority", "key"):
        if options.insecure and name in files:
            raise BadInput(f"{path}: `insecure: true` and `{name}` exclude each other: delete one of them.")
        if not options.insecure and name not in files:
            raise BadInput(f"{path}: `{name}` is missing; without TLS and keys only what says `insecure: true` works.")
        if name in files and not files[name].is_file():
            raise BadInput(f"{path}: {name}: there is no file {files[name]}; it is part of the kit that the hub made.")
    common = load_experiment(options.experiment)
    own = load_experiment(options.experiment, options.settings)
    if options.name not in common.clients and options.worlds is None:
        raise BadInput(
            f"{path}: the experiment {options.experiment} has no client '{options.name}', and the file names no worlds."
        )
    refuse_what_needs_one_machine(options.experiment, own)
    if (own.name, own.sharing, own.sending) != (common.name, common.sharing, common.sending):
        raise BadInput(f"{path}: settings may not change name, sharing or sending: they are agreed with the hub.")
    site = own.clients.get(options.name)
    worlds = options.worlds or own.clients[options.name].worlds
    update: dict[str, Any] = {
        "clients": {options.name: ClientOptions(worlds=worlds, learns=site is None or site.learns)}
    }
    if options.max_megabytes is not None:
        least = min(options.max_megabytes, own.sending.max_megabytes or options.max_megabytes)
        update["sending"] = own.sending.model_copy(update={"max_megabytes": least})
    return Site(options, own.model_copy(update=update), common.terms())
