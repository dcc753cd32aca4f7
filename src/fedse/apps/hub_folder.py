"""The folder of a hub: what `fedse hub init` writes and `fedse hub run` reads.

hub.yaml  nginx.conf  bundle/  certificates/{ca.crt, ca.key, server.crt, server.key}  keys/SITE.pub
sites/SITE/{site.yaml, ca.crt, site.key}   the kit of a site: to be carried there, then deleted here
                                           (an insecure hub has no certificates, and keys/SITE.none in place of keys)
flower/                                    state of Flower's server
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from fedse import atomic
from fedse.errors import BadInput
from fedse.experiment_file import explain
from fedse.plugins import PluginOptions
from fedse.strict_yaml import read_yaml, to_yaml

BUNDLE = Path(__file__).parent / "bundle"
_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class HubOptions(PluginOptions):
    """The hub's own settings, in hub.yaml."""

    address: str = Field(pattern=r"^[^\s:]+:\d{1,5}$")
    """Host and port at which sites reach the hub: those of the reverse proxy."""
    port: int = Field(default=8000, ge=1, le=65535)
    """Port of Flower's server, on this machine only."""
    insecure: bool = False
    """No TLS and no keys: everything can be read and changed on its way, and anybody may come in as any site."""


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
        """Make a hub, or add sites to the one that is there. Existing keys are never replaced."""
        from fedse.apps.certificates import write_authority

        for site in sites:
            if not _SITE.fullmatch(site):
                raise BadInput(f"the site name '{site}' may hold letters, digits, '.', '_' and '-' only.")
        if not (path / "hub.yaml").exists():
            with atomic.explained(path):
                path.mkdir(parents=True, exist_ok=True)
            if leftover := sorted(item.name for item in path.iterdir()):
                raise BadInput(f"{path} is not empty and not a hub (it holds {leftover[0]}): choose another folder.")
            with atomic.explained(path):
                if not options.insecure:
                    write_authority(path / "certificates", options.address.rsplit(":", 1)[0])
                _write_bundle(path / "bundle", options)
                (path / "nginx-temp").mkdir()
                atomic.write_text(path / "nginx.conf", nginx_configuration(path.resolve(), options))
                atomic.write_text(path / "flower/config.toml", _flower_configuration(path.resolve(), options))
                atomic.write_text(path / "hub.yaml", to_yaml(options.model_dump()))
        hub = cls.existing(path)
        if hub.options != options:
            raise BadInput(
                f"{path} is a hub with other settings (address {hub.options.address}, port {hub.options.port}"
                f"{', insecure' if hub.options.insecure else ''}): give the same, or choose another folder."
            )
        for site in sites:
            hub._add(site)
        return hub

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
            # The public key last: a site counts as added when the hub knows its key.
            write_site_key(kit / "site.key", kit / "site.pub")
            (kit / "site.pub").replace(self.key(site))

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


def _write_bundle(path: Path, options: HubOptions) -> None:
    shutil.copytree(BUNDLE, path)
    if options.insecure:
        # So that people who run the bundle with Flower's own command need not know it.
        project = path / "pyproject.toml"
        atomic.write_text(project, project.read_text().replace("insecure = false", "insecure = true"))


def nginx_configuration(path: Path, options: HubOptions) -> str:
    """Lets sites in and nobody else: of Flower's routes only those under /v1/fleet/ can be reached from outside."""
    public = options.address.rsplit(":", 1)[1]
    if options.insecure:
        signed = "THIS HUB IS INSECURE: it has no TLS and no keys, so anybody who reaches it may come in as a site."
        listen, onward = f"listen {public};", f"proxy_pass http://127.0.0.1:{options.port};"
    else:
        signed = "Their requests are signed with their keys."
        listen = f"""listen {public} ssl;
        ssl_certificate {path}/certificates/server.crt;
        ssl_certificate_key {path}/certificates/server.key;
        ssl_protocols TLSv1.2 TLSv1.3;"""
        onward = f"""proxy_pass https://127.0.0.1:{options.port};
            proxy_ssl_trusted_certificate {path}/certificates/ca.crt;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;"""
    return f"""# The fence of the hub. Flower's server has NO LOGIN on its control routes: whoever reaches them can run
# code on every site. It listens on this machine only, and this proxy passes on nothing but the routes of the sites.
# {signed}
# Start it with:  nginx -p {path} -c {path}/nginx.conf
pid {path}/nginx.pid;
error_log {path}/nginx-error.log;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {path}/nginx-temp/body;
    proxy_temp_path {path}/nginx-temp/proxy;
    fastcgi_temp_path {path}/nginx-temp/fastcgi;
    uwsgi_temp_path {path}/nginx-temp/uwsgi;
    scgi_temp_path {path}/nginx-temp/scgi;
    # Flower cuts adapters into pieces of 5 MB.
    client_max_body_size 64m;
    merge_slashes off;
    server {{
        {listen}
        location / {{ return 403; }}
        # Letters and dashes only, so that no dots, slashes or encoded signs can lead to another route.
        location ~ ^/v1/fleet/[a-z-]+$ {{
            limit_except POST {{ deny all; }}
            {onward}
            proxy_read_timeout 120s;
            # Nothing of the sites is written to the proxy's disk.
            proxy_request_buffering off;
            proxy_buffering off;
        }}
    }}
}}
"""


def _flower_configuration(path: Path, options: HubOptions) -> str:
    protection = "insecure = true" if options.insecure else f'root-certificates = "{path}/certificates/ca.crt"'
    return f'[superlink]\ndefault = "hub"\n\n[superlink.hub]\naddress = "127.0.0.1:{options.port}"\n{protection}\n'


def _site_file(site: str, options: HubOptions) -> str:
    protection = "authority: ca.crt\nkey: site.key                 # keep it secret"
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
# settings: [model.device=cuda]
"""
