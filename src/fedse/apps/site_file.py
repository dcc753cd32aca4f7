"""A site's own file: who it is, which hub it works with, and what it keeps for itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from fedse.apps.agreed import check_agreed
from fedse.apps.budget import BudgetOptions
from fedse.apps.hub_file import ELSEWHERE, load_without_worlds, refuse_what_needs_one_machine, told_worlds_of
from fedse.apps.site_sums import SiteSumOptions, check_masked
from fedse.errors import BadInput
from fedse.experiments.client_options import ClientOptions
from fedse.experiments.file import explain
from fedse.experiments.options import Experiment
from fedse.experiments.world_settings import for_worlds, made_for
from fedse.plugins import Choice, ChoiceOf, FilePath, PluginOptions, build
from fedse.plugins.finding import nearest
from fedse.privacy.guards import LeavingOptions
from fedse.storage.strict_yaml import read_yaml
from fedse.worlds.contract import ContractOptions

PROTECTION = ("authority", "key", "hub_key")
"""Keys of a site's file that name what hub and site prove with who they are."""


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
    hub_key: FilePath | None = None
    """The hub's public key: a task that is not signed with its other half is refused, whoever brings it."""
    insecure: bool = False
    """No TLS and no keys, for a hub that was made so; it takes the place of `authority`, `key` and `hub_key`."""
    experiment: FilePath
    """The experiment, the same file as the hub's; the site does nothing that is not in it."""
    folder: FilePath = Path("data")
    """Where buffer, journal and ledger lie, for each run."""
    worlds: list[Annotated[Choice, ChoiceOf("world")]] | None = Field(default=None, min_length=1)
    """The site's worlds; by default those that the experiment names for it."""
    contract: ContractOptions | None = None
    """What the agent may never do in the site's worlds, in place of what the experiment says for it."""
    max_megabytes: float | None = Field(default=None, gt=0)
    """Refuse to send more than this in one update, whatever the experiment allows."""
    leaves: LeavingOptions = LeavingOptions()
    """What the site tells beside its adapter."""
    agreed: dict[str, Any] = Field(default_factory=dict)
    """What the experiment must say, by key, such as `{model.name: nano, learner.epochs: {at_most: 2}}`."""
    budget: BudgetOptions = BudgetOptions()
    """Most of what the hub may ask for in one run."""
    secure_sum: SiteSumOptions | None = None
    """With whom the site takes part in secure sums; it sends no update in the clear then."""
    settings: list[str] = Field(default_factory=list)
    """Changes for this machine, such as model.device=cuda, as after --set. They cannot change what is sent."""


@dataclass(frozen=True)
class Site:
    options: SiteOptions
    experiment: Experiment
    terms: str
    """Digest of the experiment before this machine's own settings; the hub's must be the same."""
    common: tuple[str, ...] = ()
    """Labels of the worlds that the common experiment names for this site; it tells of others as `other`."""

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
    given = {name: getattr(options, name) for name in (*PROTECTION, "experiment", "folder")}
    files = {name: here / value for name, value in given.items() if value is not None}
    if options.secure_sum is not None:
        summing = options.secure_sum.model_copy(update={"key": here / options.secure_sum.key})
        options = options.model_copy(update={"secure_sum": summing})
    options = options.model_copy(update=files)
    for name in PROTECTION:
        if options.insecure and name in files:
            raise BadInput(f"{path}: `insecure: true` and `{name}` exclude each other: delete one of them.")
        if not options.insecure and name == "hub_key" and name not in files:
            raise BadInput(
                f"{path}: `hub_key` is missing, the hub's public key: `fedse hub init` makes it as "
                "certificates/seal.pub, also for a hub that is there already; carry it here and name it."
            )
        if not options.insecure and name not in files:
            raise BadInput(f"{path}: `{name}` is missing; without TLS and keys only what says `insecure: true` works.")
        if name in files and not files[name].is_file():
            raise BadInput(f"{path}: {name}: there is no file {files[name]}; it is part of the kit that the hub made.")
    # Where the site's file names its worlds, those of the experiment are nobody's here.
    kept = options.name if options.worlds is None else ""
    common = load_without_worlds(options.experiment)
    own = load_without_worlds(options.experiment, options.settings, but=kept)
    if options.name not in common.clients and options.worlds is None:
        raise BadInput(
            f"{path}: the experiment {options.experiment} has no client '{options.name}', and the file names no worlds."
        )
    if options.worlds is None and own.clients[options.name].worlds[0].name == ELSEWHERE["name"]:
        raise BadInput(
            f"{path}: neither this file nor the experiment {options.experiment} names the worlds of '{options.name}': add "
            "them here, such as `worlds: [maze]`."
        )
    refuse_what_needs_one_machine(options.experiment, own)
    check_masked(path, options.secure_sum, common)
    check_agreed(path, options.agreed, own)
    _check_leaves(path, options.leaves, own)
    if (own.name, own.sharing, own.sending) != (common.name, common.sharing, common.sending):
        raise BadInput(f"{path}: settings may not change name, sharing or sending: they are agreed with the hub.")
    site = own.clients.get(options.name)
    if options.worlds is not None:
        worlds = ClientOptions(worlds=for_worlds(made_for(own.model.name), content["worlds"])).worlds
        site = ClientOptions(worlds=worlds) if site is None else site.model_copy(update={"worlds": worlds})
    if options.contract is not None and site is not None:
        site = site.model_copy(update={"contract": options.contract})
    update: dict[str, Any] = {"clients": {options.name: site}}
    if options.max_megabytes is not None:
        least = min(options.max_megabytes, own.sending.max_megabytes or options.max_megabytes)
        update["sending"] = own.sending.model_copy(update={"max_megabytes": least})
    told = told_worlds_of(options.experiment).get(options.name, ())
    return Site(options, own.model_copy(update=update), common.terms, told)


def _check_leaves(path: Path, leaves: LeavingOptions, experiment: Experiment) -> None:
    """A metric must be one that there is; and an update without what its aggregator weighs by would always be refused."""
    known = experiment.metrics
    for name in leaves.metrics or ():
        if name not in known:
            raise BadInput(
                f"{path}: leaves.metrics: there is no metric '{name}'; {nearest(name, known)}known: "
                f"{', '.join(sorted(known))}."
            )
    needed = getattr(build("aggregator", experiment.aggregator), "needs_counts", ())
    if leaves.counts == "withheld" and needed:
        raise BadInput(
            f"{path}: `leaves.counts: withheld` keeps {', '.join(sorted(needed))} here, by which `aggregator: "
            f"{experiment.aggregator.name}` weighs updates: round them, or use an aggregator such as `mean`."
        )
