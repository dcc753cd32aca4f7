"""A site's part in secure sums, from its own file: its secret key, and the public keys of the sites that it trusts to be
others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.federation.summed import FEWEST_APART
from fedse.plugins import FilePath, PluginOptions
from fedse.privacy.secure_sum import SumMember
from fedse.runs.folder import RunFolder


class SiteSumOptions(PluginOptions):
    """With whom a site takes part in secure sums. It then works for no experiment that sends updates in the clear."""

    key: FilePath = Path("sum.key")
    """The site's secret key for sums; `fedse site key` makes it."""
    sites: dict[str, str] = Field(min_length=1)
    """Public keys of the sites, by name, each as `fedse site key` prints it there. Get them from the sites themselves, never
    by way of the hub. The site's own may be among them."""
    min_sites: int = Field(default=3, ge=2)
    """Fewest sites of a sum, whatever the experiment says."""


def check_masked(path: Path, options: SiteSumOptions | None, experiment: Experiment) -> None:
    """Refuse an experiment that sends in the clear what this site sends masked."""
    if options is not None and experiment.sending.secure_sum is None:
        raise BadInput(
            f"{path}: `secure_sum` says that updates leave this site masked, and the experiment has no "
            "`sending.secure_sum`: use an experiment that has it, or delete the key here to send updates in the clear."
        )


def check_keys(options: SiteSumOptions | None, experiment: Experiment) -> None:
    """Refuse to work without the keys that an experiment needs. A site is made before its keys are."""
    if options is None and experiment.sending.secure_sum is not None:
        raise BadInput(
            "the experiment has `sending.secure_sum`, and the site's file names no keys for it: run `fedse site key`, give "
            "the public key to the other sites, and list theirs in site.yaml as `secure_sum: {sites: {NAME: KEY}}`."
        )


def adds_with_one_other(options: SiteSumOptions | None, experiment: Experiment) -> bool:
    """Whether the site takes part in sums of two."""
    agreed = experiment.sending.secure_sum
    return options is not None and agreed is not None and max(agreed.min_sites, options.min_sites) < FEWEST_APART


def own_member(name: str, options: SiteSumOptions | None) -> Callable[[Experiment, RunFolder, str], SumMember | None]:
    """What the site adds to sums with, for `build_clients`."""

    def member(experiment: Experiment, run: RunFolder, client: str) -> SumMember | None:
        del run  # What was answered belongs to the key, and lies beside it.
        check_keys(options, experiment)
        agreed = experiment.sending.secure_sum
        if options is None or agreed is None or client not in experiment.learners:
            return None
        # Who only reads a site's file, as the page does, needs no library behind the keys.
        from fedse.privacy.sum_keys import public_text, read_key, read_public

        key = read_key(options.key)
        if options.sites.get(name, public_text(key)) != public_text(key):
            raise BadInput(
                f"secure_sum.sites: what stands for this site itself, '{name}', is not the public half of {options.key}: "
                "the other sites may have the wrong one too."
            )
        return SumMember(
            name=name,
            run=experiment.name,
            options=agreed.model_copy(update={"min_sites": max(agreed.min_sites, options.min_sites)}),
            key=key,
            others={other: read_public(text, other) for other, text in options.sites.items() if other != name},
            answered=options.key.with_name(f"sum-answered-{experiment.name}.safetensors"),
        )

    return member
