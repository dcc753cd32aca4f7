"""The folder through which a server gets adapters, one at a time."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import weakref
from pathlib import Path

from fedse.adapters.files import write_adapter
from fedse.errors import BadInput
from fedse.servers.token_server import TokenServer
from fedse.types import Adapter


class AdapterFolder:
    """In PEFT's layout, under a path that the server can read too. Removed when it is closed, or with its owner."""

    def __init__(self, server: TokenServer, within: str | None) -> None:
        """Made in the system's temporary folder where it is `within` no other."""
        if within and not Path(within).is_dir():
            raise BadInput(
                f"policy.adapters: {within} is no folder: make one that the server can read under the same path."
            )
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="fedse-adapters-", dir=within))
        # A policy is never told that a run has ended.
        self._removed = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.loaded = ""
        """Name under which the server knows the adapter."""

    def load(self, adapter: Adapter) -> None:
        # Never a name that the server had before: it could answer with what it kept under it.
        name = f"fedse-{adapter.digest()[:12]}-{secrets.token_hex(4)}"
        folder = self._folder / name
        folder.mkdir()
        write_adapter(adapter, folder)
        self._server.load(name, folder.resolve())
        if self.loaded:
            self._server.unload(self.loaded)
            shutil.rmtree(self._folder / self.loaded)
        self.loaded = name

    def close(self) -> None:
        self._removed()
