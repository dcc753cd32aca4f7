"""The folder of a hub: what `fedse hub init` writes and `fedse hub run` reads.

hub.yaml  nginx.conf  bundle/  certificates/{ca.crt, ca.key, server.crt, server.key, seal.key, seal.pub}  keys/SITE.pub
sites/SITE/{site.yaml, ca.crt, hub.pub, site.key}   the kit of a site: to be carried there, then deleted here
revoked/SITE-MARK.pub                      keys that are no longer let in
                                           (an insecure hub has no certificates, and keys/SITE.none in place of keys)
flower/                                    state of Flower's server
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from fedse.apps.hub_options import HubOptions
from fedse.apps.nginx_file import nginx_configuration
from fedse.errors import BadInput
from fedse.experiments.file import explain
from fedse.experiments.folder_names import name_problem
from fedse.storage import atomic
from fedse.storage.strict_yaml import read_yaml, to_yaml

BUNDLE = Path(__file__).parent / "bundle"


@dataclass(frozen=True)
class HubFolder:
    path: Path
    options: HubOptions

    @classmethod
    def existing(cls, path: Path) -> HubFolder:
        if not (path / "hub.yaml").is_file():
            raise BadInput(f"{path} is not a hub: it holds no hub.yaml; make one with `fedse hub init`.")
        content, places = read_yaml(path / "hub.yaml")
        try:
            return cls(path.resolve(), HubOptions.model_validate(content))
        except ValidationError as error:
            raise BadInput(explain(error, HubOptions, places)) from error

    @classmethod
    def create(cls, path: Path, options: HubOptions, sites: Sequence[str]) -> HubFolder:
        """Make a hub, or add sites to the one that is there, whose options need not be given again. Existing keys are never
        replaced."""
        for site in sites:
            if problem := name_problem(site):
                raise BadInput(f"--site: {problem}")
        if not (path / "hub.yaml").exists():
            _begin(path, options)
        hub = cls.existing(path)
        if any(getattr(hub.options, key) != getattr(options, key) for key in options.model_fields_set):
            raise BadInput(
                f"{path} is a hub with other settings (address {hub.options.address}, port {hub.options.port}"
                f"{', insecure' if hub.options.insecure else ''}): give the same, or choose another folder."
            )
        hub._make_seal()
        hub._renew_bundle()
        for site in sites:
            hub._add(site)
        return hub

    def _make_seal(self) -> None:
        """Once, also for a hub that an older fedse made."""
        from fedse.apps.certificates import write_seal

        if not self.options.insecure and not self.certificate("seal.key").exists():
            write_seal(self.certificate("seal.key"), self.certificate("seal.pub"))

    def _renew_bundle(self) -> None:
        """Sites take the bundle of their own version of fedse only; a hub that an older one made has another."""
        if (self.path / "bundle/pyproject.toml").read_text() != _project(self.options):
            atomic.write_text(self.path / "bundle/pyproject.toml", _project(self.options))

    def _add(self, site: str) -> None:
        from fedse.apps.certificates import write_site_key

        if site in self.sites():
            return
        kit = self.path / "sites" / site
        with atomic.explained(kit):
            kit.mkdir(parents=True, exist_ok=True)
            atomic.write_text(kit / "site.yaml", _site_file(site, self.options))
            (self.path / "keys").mkdir(exist_ok=True)
            if self.options.insecure:
                self.key(site).touch()
                return
            shutil.copyfile(self.certificate("ca.crt"), kit / "ca.crt")
            shutil.copyfile(self.certificate("seal.pub"), kit / "hub.pub")
            # The public key last: a site counts as added when the hub knows its key.
            write_site_key(kit / "site.key", kit / "site.pub")
            (kit / "site.pub").replace(self.key(site))

    def revoke(self, site: str) -> None:
        """Take a site's key away for good. Under the same name a new one can be made."""
        if self.options.insecure:
            raise BadInput(f"{self.path} is an insecure hub: it has no keys, so anybody may come in under any name.")
        if site not in self.sites():
            raise BadInput(f"{self.path} has no site '{site}': it has {', '.join(self.sites()) or 'none'}.")
        with atomic.explained(self.path):
            spent = self.path / "revoked"
            spent.mkdir(exist_ok=True)
            key = self.key(site)
            mark = hashlib.sha256(key.read_bytes()).hexdigest()[:12]
            key.replace(spent / f"{site}-{mark}.pub")
            # A kit that was not carried away yet belongs to the key.
            if (self.path / "sites" / site).exists():
                shutil.rmtree(self.path / "sites" / site)

    def renew(self) -> None:
        """New certificates for hub and authority, also in the kits that are still here."""
        from fedse.apps.certificates import renew

        if self.options.insecure:
            raise BadInput(f"{self.path} is an insecure hub: it has no certificates.")
        renew(self.path / "certificates", self.options.host)
        for kit in (self.path / "sites").glob("*/ca.crt"):
            shutil.copyfile(self.certificate("ca.crt"), kit)

    def sites(self) -> list[str]:
        return sorted(path.stem for path in (self.path / "keys").glob(f"*{self._ending}"))

    def key(self, site: str) -> Path:
        return self.path / "keys" / f"{site}{self._ending}"

    @property
    def _ending(self) -> str:
        return ".none" if self.options.insecure else ".pub"

    def certificate(self, name: str) -> Path:
        return self.path / "certificates" / name

    @property
    def home(self) -> Path:
        """Where Flower keeps its own files."""
        return self.path / "flower"


def _begin(path: Path, options: HubOptions) -> None:
    """Everything of a hub but its sites; hub.yaml last."""
    from fedse.apps.certificates import write_authority

    with atomic.explained(path):
        path.mkdir(parents=True, exist_ok=True)
    if leftover := sorted(item.name for item in path.iterdir()):
        raise BadInput(f"{path} is not empty and not a hub (it holds {leftover[0]}): choose another folder.")
    with atomic.explained(path):
        if not options.insecure:
            write_authority(path / "certificates", options.host)
        _write_bundle(path / "bundle", options)
        atomic.write_text(path / "nginx.conf", nginx_configuration(path.resolve(), options))
        write_flower_configuration(path.resolve(), options)
        atomic.write_text(path / "hub.yaml", to_yaml(options.model_dump()))


def _write_bundle(path: Path, options: HubOptions) -> None:
    path.mkdir()
    atomic.write_text(path / "pyproject.toml", _project(options))


def _project(options: HubOptions) -> str:
    project = (BUNDLE / "pyproject.toml").read_text()
    # So that people who run the bundle with Flower's own command need not know it.
    return project.replace("insecure = false", "insecure = true") if options.insecure else project


def write_flower_configuration(path: Path, options: HubOptions) -> None:
    """Where `flwr run` finds the hub."""
    protection = "insecure = true" if options.insecure else f'root-certificates = "{path}/certificates/ca.crt"'
    text = f'[superlink]\ndefault = "hub"\n\n[superlink.hub]\naddress = "127.0.0.1:{options.port}"\n{protection}\n'
    atomic.write_text(path / "flower/config.toml", text)


def _site_file(site: str, options: HubOptions) -> str:
    protection = "authority: ca.crt\nhub_key: hub.pub\nkey: site.key                 # keep it secret"
    if options.insecure:
        protection = "insecure: true                # NO TLS AND NO KEYS: for a network that is closed to others"
    return f"""# The site '{site}'. Keep this folder on the site's machine.
name: {site}
hub: {options.address}
{protection}
experiment: experiment.yaml   # the same file as the hub's
folder: data                  # worlds' trajectories, buffer and ledger stay here
# worlds: [maze]              # this site's own worlds; without it, those the experiment names for it
# max_megabytes: 200          # never send more in one update
# budget: {{rounds: 30, hours: 48}}   # most of what the hub may ask for
# leaves: {{counts: rounded}}   # what is told beside the adapter
# agreed: {{model.name: nano, exploration.tasks: {{at_most: 50}}}}   # work for no experiment that says otherwise
# secure_sum: {{sites: {{NAME: PUBLIC_KEY}}}}   # keys as `fedse site key` prints them at each site
# settings: [model.device=cuda]
"""
