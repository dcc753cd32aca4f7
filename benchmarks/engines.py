"""What an engine costs: seconds a round, memory and bytes for adapters of different sizes, and the start of a site's round.

    python benchmarks/engines.py transport --engine local|flower|deployment --clients 8 --megabytes 20
    python benchmarks/engines.py round          a site's rounds with nano: what is work and what is not
    python benchmarks/engines.py many           a simulation of 1,000 clients with adapters of nano's size, 5 % in each round

Adapters are random and different for each client and round: Flower keeps equal pieces of content once, so that constant
arrays look far too fast.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fedse.seeds import generator
from fedse.types import Adapter, Lesson

HERE = Path(__file__).parent
NANO_MEGABYTES = 0.44
"""Size of an adapter of the model nano."""
FEDSE = [sys.executable, "-m", "fedse"]


class Noise:
    """A learner that learns nothing and sends numbers that nobody has sent before."""

    def __init__(self, model: Any) -> None:
        del model

    def learn(self, lesson: Lesson) -> tuple[Adapter, Mapping[str, float]]:
        chance = generator(lesson.key, "noise")
        tensors = {
            name: tensor + 1e-3 * chance.standard_normal(tensor.shape, dtype=np.float32)
            for name, tensor in lesson.start.tensors.items()
        }
        return Adapter(tensors, lesson.start.config), {}


def experiment(clients: int, megabytes: float, rounds: int) -> dict[str, Any]:
    world = {"name": "maze", "mode": "original"}
    return {
        "name": "transport",
        "rounds": rounds,
        "model": {"name": "table", "rows": int(megabytes * 1e6 / 16)},
        "policy": "table",
        "learner": "engines:Noise",
        "clients": {f"c{number:04d}": {"worlds": [world]} for number in range(clients)},
        "start": "none",
        "filter": "none",
        "exploration": {"tasks": 1},
        "evaluation": {"tasks": 1, "tasks_per_round": 0, "test_tasks": 0},
    }


class Memory:
    """The largest sum of proportional set sizes of a process and all its descendants, looked at four times a second."""

    def __init__(self, root: int) -> None:
        self.most = 0.0
        self._root = root
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.25):
            self.most = max(self.most, sum(map(_megabytes, descendants(self._root))))

    def stop(self) -> float:
        self._over.set()
        self._thread.join()
        return self.most


def descendants(root: int) -> set[int]:
    """A process, its children and theirs."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _megabytes(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return sum(int(size) for size in re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)) / 1e3


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}


def transport(engine: str, clients: int, megabytes: float, rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fedse-benchmark-"))
    content = experiment(clients, megabytes, rounds)
    content["engine"] = "local" if engine == "deployment" else engine
    (folder / "experiment.yaml").write_text(yaml.safe_dump(content))
    began = time.monotonic()
    memory = Memory(os.getpid())
    try:
        if engine == "deployment":
            deploy(folder, list(content["clients"]))
        else:
            subprocess.run(
                [*FEDSE, "run", "experiment.yaml"], cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL
            )
        reports = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/rounds/*/report.json"))]
        seconds = [report["seconds"] for report in reports]
        sent = sum(entry["bytes"] for report in reports for entry in report["clients"].values()) / len(reports)
        print(
            f"| {engine} | {clients} | {megabytes:g} | {statistics.median(seconds[1:]):.1f} "
            f"({min(seconds[1:]):.1f} to {max(seconds[1:]):.1f}) | {seconds[0]:.1f} | {memory.stop() / 1e3:.1f} | "
            f"{sent / 1e6:.0f} | {time.monotonic() - began:.0f} |",
            flush=True,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def deploy(folder: Path, sites: Sequence[str], watch: Callable[[], None] = lambda: None) -> None:
    port = free_port()
    words = [word for site in sites for word in ("--site", site)]
    line = [*FEDSE, "hub", "init", "hub", "--address", f"127.0.0.1:{port}", "--port", str(port), *words]
    subprocess.run(line, cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL)
    hub = subprocess.Popen(
        [*FEDSE, "hub", "run", "experiment.yaml"], cwd=folder, env=environment(), stdout=subprocess.DEVNULL
    )
    running = []
    try:
        for site in sites:
            shutil.copyfile(folder / "experiment.yaml", folder / f"hub/sites/{site}/experiment.yaml")
            with (folder / f"{site}.log").open("wb") as log:
                line = [*FEDSE, "site", "run", f"hub/sites/{site}/site.yaml"]
                running.append(subprocess.Popen(line, cwd=folder, env=environment(), stdout=log, stderr=log))
        while hub.poll() is None:
            watch()
            time.sleep(0.02)
        assert hub.returncode == 0, (folder / "hub/flower/superlink.log").read_text()[-2000:]
    finally:
        for process in [hub, *running]:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def site_round(rounds: int) -> None:
    """For each message: how long Flower's process for it lived, and how long the worker worked in that time."""
    folder = Path(tempfile.mkdtemp(prefix="fedse-benchmark-"))
    content = experiment(1, 1, rounds)
    content.update(model="nano", policy="transformer", learner="imitation", start={"tasks": 2}, filter="success")
    content["clients"] = {"c0000": {"worlds": [{"name": "maze"}]}}
    content["exploration"] = {"tasks": 8}
    (folder / "experiment.yaml").write_text(yaml.safe_dump(content))
    lives: dict[int, list[float]] = {}

    def watch() -> None:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes()
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if b"flwr-clientapp" in line:
                    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                    now = time.time()
                    lives.setdefault(int(entry.name), [now, now, 0.0])[1:] = [now, used]

    program = """
import time
began, used = time.time(), time.process_time()
from fedse.apps.site_file import load_site
from fedse.apps.worker import Worker
Worker(load_site(__import__("pathlib").Path("hub/sites/c0000/site.yaml")), print)
print(time.time() - began, time.process_time() - used)
"""
    try:
        deploy(folder, ["c0000"], watch)
        worked = [
            float(seconds) for seconds in re.findall(r"answered.* in ([\d.]+) s", (folder / "c0000.log").read_text())
        ]
        loading = subprocess.run(
            [sys.executable, "-c", program], cwd=folder, env=environment(), check=True, capture_output=True, text=True
        )
        wall, cpu = map(float, loading.stdout.split()[-2:])
        print(f"loading nano and building the site, once: {wall:.1f} s ({cpu:.1f} s of CPU)")
        for number, ((first, last, used), work) in enumerate(zip(lives.values(), worked, strict=False), 1):
            print(
                f"message {number}: Flower's process {last - first:.1f} s, the worker in it {work:.1f} s, "
                f"so {last - first - work:.1f} s beside the work ({used:.1f} s of CPU); "
                f"loaded anew it would be {last - first - work + wall:.1f} s"
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def many(clients: int, rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fedse-benchmark-"))
    content = experiment(clients, NANO_MEGABYTES, rounds)
    content.update(engine="flower", participation={"fraction": 0.05})
    (folder / "experiment.yaml").write_text(yaml.safe_dump(content))
    memory = Memory(os.getpid())
    # The rounds alone: the evaluation after the last one would ask all clients.
    program = """
import fedse, pathlib
from fedse.experiments.assembling import assemble
from fedse.experiments.beginning import beginning_of
from fedse.experiments.components import build_components
from fedse.runs.folder import RunFolder
from fedse.runs.trackers import told_of
experiment = fedse.load_experiment("experiment.yaml")
run = RunFolder.create(pathlib.Path("runs/many"), experiment.to_yaml(), experiment.digest())
components = build_components(experiment)
federation = assemble(experiment, components, run, told_of(run.path), beginning_of(experiment, components, run))
try:
    federation.server.federate(experiment.rounds, federation.initial_adapter)
finally:
    federation.close()
"""
    try:
        subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment(), check=True)
        reports = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/rounds/*/report.json"))]
        seconds = [report["seconds"] for report in reports]
        print(
            f"{clients} clients, {[len(report['clients']) for report in reports]} in each round, adapters of nano's size: "
            f"{seconds[0]:.1f} s for the first round, {statistics.median(seconds[1:]):.1f} s for the later ones, "
            f"{memory.stop() / 1e3:.1f} GB"
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["transport", "round", "many"])
    parser.add_argument("--engine", choices=["local", "flower", "deployment"], default="local")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--megabytes", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    if given.what == "transport":
        print("| engine | clients | MB | s a round (range) | first round | GB | MB up a round | s in all |")
        transport(given.engine, given.clients or 8, given.megabytes, given.rounds)
    elif given.what == "round":
        site_round(given.rounds)
    else:
        many(given.clients or 1000, given.rounds)


if __name__ == "__main__":
    main()
