"""Small real things that many tests need: a tiny language model, experiments that run in a second."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
import typer.testing

import factored_table
import fedse
from fedse.evaluation.curves import curves
from fedse.evaluation.plot import draw_run
from fedse.experiments import assembling
from fedse.experiments.options import Experiment
from short_maze import SHORT_MAZE

gc.disable()  # Until all is collected: tests and the libraries that they import are a million objects that stay.


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test process begins with a share of the slow tests: one that begins last is waited for by all others."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = [
        item for number in range(processes) for some in (slow, quick) for item in _share(some, number, processes)
    ]


def _share(items: list[pytest.Item], number: int, processes: int) -> list[pytest.Item]:
    """Of a file all or nothing: what its tests share is made once."""
    files = [item.path for item in items]
    ends = [len(items) * place // processes for place in (number, number + 1)]
    begin, end = (files.index(files[place]) if place < len(files) else place for place in ends)
    return items[begin:end]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not importlib.import_module("torch").cuda.is_available():
        pytest.skip("needs a GPU")


@pytest.fixture(scope="session", autouse=True)
def children_hear_ctrl_c() -> None:
    """A shell lets what it runs in the background ignore this signal, and every process that a test starts inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def same_numbers(request: pytest.FixtureRequest) -> None:
    """Networks that a test makes are the same ones whatever ran before it: their weights decide how far roundings go."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)
        # It leaves word with a device that is not in use yet, which would take a millisecond of every test.
        if torch.cuda.is_initialized() or request.node.get_closest_marker("gpu"):
            torch.cuda.manual_seed_all(0)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A model with `threads: 2` sets them for the whole process; two test processes with two threads each then wait for each
    other, and all later tests take ten times as long."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def commands_are_made_once() -> Iterator[None]:
    """Typer reads the signatures of all commands whenever a test calls one, which takes longer than most of them."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(typer.testing, "_get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def runs_draw_nothing() -> Iterator[None]:
    """A picture takes as long as a small run. Commands draw theirs, and so do tests that ask for `pictures`."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(assembling, "draw_run", lambda run: curves(run) and None)
        yield


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembling, "draw_run", draw_run)


@pytest.fixture
def only_new_objects() -> None:
    """The garbage collector sees what a test makes, and nothing that was there before."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def ray_is_not_nice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers give way to all other processes, and beside other tests they would take four times as long."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    monkeypatch.setenv("RAY_worker_niceness", "0")


@pytest.fixture(scope="session")
def tiny() -> Any:
    """A random Llama small enough to train in a test. Shared: whoever uses it loads the adapter they mean."""
    from fedse.models.tiny import Tiny

    return Tiny(width=32, layers=2, context=2048, device="cpu", threads=1)


@pytest.fixture
def table_experiment() -> Callable[..., Experiment]:
    """The complete loop without torch: two clients in the double-T maze."""

    def make(**changes: Any) -> Experiment:
        content: dict[str, Any] = {
            "name": "table",
            "rounds": 2,
            "model": {"name": "table", "rows": 512},
            "policy": "table",
            "learner": "table",
            "clients": {
                "east": {"worlds": [SHORT_MAZE]},
                "west": {"worlds": [{**SHORT_MAZE, "turn_limit": 12}]},
            },
            "start": {"name": "demonstrations", "tasks": 3},
            "exploration": {"tasks": 10, "attempts": 2},
            "evaluation": {"tasks": 5, "test_tasks": 5},
        }
        return Experiment(**{**content, **changes})

    return make


TINY_FILE = """
name: tiny
rounds: 2
model: {name: tiny, width: 32, layers: 2, device: cpu, threads: 1}
clients:
  maze: {worlds: [{name: maze, rules: brief, observation_length: brief, turn_limit: 4}]}
  wordle: {worlds: [{name: wordle, rules: brief, guesses: 2}]}
start: {tasks: 6}
exploration: {tasks: 3}
evaluation: {tasks: 2, test_tasks: 2}
learner: {learning_rate: 1e-3, batch_size: 4}
policy: {slots: 8, reply_tokens: 12}
"""


@pytest.fixture(scope="session")
def tiny_text() -> str:
    """Two worlds and a language model, small enough for a few seconds."""
    return TINY_FILE


@pytest.fixture
def tiny_file(tmp_path: Path, tiny_text: str) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_text)
    return file


@pytest.fixture
def tiny_experiment(tiny_file: Path) -> Experiment:
    return fedse.load_experiment(tiny_file)


@pytest.fixture
def outside_data() -> Path:
    """Data that does not ship with the package."""
    folder = os.environ.get("FEDSE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FEDSE_DATA names no folder with outside data")
    return Path(folder)


@pytest.fixture
def factored(table_experiment: Callable[..., Experiment]) -> Callable[..., Experiment]:
    def make(**changes: Any) -> Experiment:
        content = {
            "model": {"name": "factored_table:FactoredTable", "rows": factored_table.ROWS},
            "policy": "factored_table:FactoredPolicy",
            "learner": "factored_table:FactoredLearner",
            "rounds": 3,
            "exploration": {"tasks": 5},
            "evaluation": {"tasks": 10, "test_tasks": 0},
        }
        return table_experiment(**{**content, **changes})

    return make


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a file of `benchmarks/` by its name; afterwards it is forgotten."""
    folder, known = Path(__file__).parents[1] / "benchmarks", set(sys.modules)
    monkeypatch.syspath_prepend(folder)

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield module
    for name in set(sys.modules) - known:
        if (folder / f"{name}.py").exists():
            del sys.modules[name]
