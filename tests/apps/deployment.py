"""A hub and its sites as real processes on this machine, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from fedse_command import command

FEDSE = [sys.executable, "-m", "fedse"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: Callable[[], Any], seconds: float, name: str) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > until:
            raise AssertionError(f"waited {seconds} s in vain for {name}")
        time.sleep(0.1)
    return found


class Deployment:
    """Use as a context manager: nothing survives it."""

    def __init__(self, folder: Path, experiment: str, sites: list[str], public: int | None = None, *more: str) -> None:
        self.folder = folder
        self.flags = folder / "flags"
        self.flags.mkdir(parents=True)
        self.port = free_port()
        self.public = public or self.port
        self.experiment = folder / "experiment.yaml"
        self.experiment.write_text(experiment)
        self.hub = folder / "hub"
        self.runs = folder / "runs"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        line = ["hub", "init", str(self.hub), "--address", f"127.0.0.1:{self.public}", "--port", str(self.port)]
        if "--fence" not in more:
            line += ["--no-fence"]
        self.init = self.fedse(*line, *more, *[word for site in sites for word in ("--site", site)])
        for site in sites:
            shutil.copyfile(self.experiment, self.kit(site) / "experiment.yaml")

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        for name in list(self._running):
            self.kill(name)
        if kind is not None:
            for log in sorted(self.folder.glob("*.log")):
                sys.stdout.write(f"--- {log.name}\n{log.read_text()[-3000:]}\n")
            for log in sorted(self.folder.rglob("super*.log")):
                sys.stdout.write(f"--- {log}\n{log.read_text()[-2000:]}\n")

    def environment(self, site: str = "") -> dict[str, str]:
        paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {
            **os.environ,
            "PYTHONPATH": paths,
            "FEDSE_TEST_FLAGS": str(self.flags),
            "FEDSE_TEST_SITE": site,
            "OMP_NUM_THREADS": "1",
        }

    def fedse(self, *words: str) -> str:
        done = command(*words, folder=self.folder, environment=self.environment())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kit(self, site: str) -> Path:
        return self.hub / "sites" / site

    def start_site(self, site: str, file: Path | None = None, name: str = "") -> subprocess.Popen[bytes]:
        return self._start(name or site, ["site", "run", str(file or self.kit(site) / "site.yaml")], site)

    def start_hub(self) -> subprocess.Popen[bytes]:
        line = ["hub", "run", str(self.experiment), "--hub", str(self.hub), "--runs", str(self.runs)]
        return self._start("hub", line, "")

    def open_hub(self) -> subprocess.Popen[bytes]:
        """Without a run."""
        process = self._start("hub", ["hub", "open", "--hub", str(self.hub)], "")
        wait_for(lambda: "the hub is open" in self.log("hub"), 180, "the hub")
        return process

    def _start(self, name: str, words: list[str], site: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*FEDSE, *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(site),
                cwd=self.folder,
                start_new_session=True,
            )
        self._running[name] = process
        return process

    def kill(self, name: str) -> None:
        """As a power cut would: the process and everything it has started."""
        process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def children(self, name: str, word: str) -> list[int]:
        """Processes that the process has started itself, with this word in their command."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # The name in parentheses may hold anything; the parent is the second field after it.
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == self._running[name].pid and word in (folder / "cmdline").read_text():
                    found.append(int(folder.name))
        return found

    def kill_alone(self, name: str) -> None:
        """The process itself; what it has started must notice."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def hold(self, what: str) -> None:
        (self.flags / what).touch()

    def wait_held(self, what: str, seconds: float = 180) -> None:
        wait_for((self.flags / f"{what}.held").exists, seconds, f"{what} to be held")

    def release(self, what: str) -> None:
        (self.flags / what).unlink()

    def reports(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.runs.glob(f"{name}/rounds/*/report.json"))]

    def adapter(self) -> str:
        return self.log("hub").rsplit("Adapter: ", 1)[1].split()[0]


class Recorder:
    """Stands between sites and hub, opens the TLS connection as the hub would, and keeps every byte that passes."""

    def __init__(self) -> None:
        # Bound and not yet listening: whoever comes before `open` finds nobody.
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.from_sites = bytearray()
        self.from_hub = bytearray()
        self.stop_before: bytes | None = None
        """What sites send from these bytes on, in any connection, does not arrive."""
        self.stopped = False

    def open(self, certificates: Path, port: int) -> None:
        self._front = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._front.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        self._back = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        self._target = port
        threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True).start()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, sock=self._listener, ssl=self._front)
        async with server:
            await server.serve_forever()

    async def _serve(self, site_in: asyncio.StreamReader, site_out: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            hub_in, hub_out = await asyncio.open_connection(
                "127.0.0.1", self._target, ssl=self._back, server_hostname="localhost"
            )
            await asyncio.gather(
                self._pump(site_in, hub_out, self.from_sites, self._lets_pass),
                self._pump(hub_in, site_out, self.from_hub, lambda content: True),
            )
        site_out.close()

    def _lets_pass(self, content: bytes) -> bool:
        if self.stop_before is None or self.stop_before not in content:
            return True
        self.stopped = True
        return False

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        record: bytearray,
        lets_pass: Callable[[bytes], bool],
    ) -> None:
        with contextlib.suppress(OSError):
            while content := await source.read(65536):
                if not lets_pass(content):
                    # The line stays open and is silent, until the sender is gone.
                    while await source.read(65536):
                        pass
                    break
                record += content
                target.write(content)
                await target.drain()
        target.close()
