"""OpenEnv's own package, in a virtual environment of its own, at the other end of the wire: its client and its validator at
our server, our client at its server. The environments are the one that `openenv init` makes, and a small one with tasks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedse.types import SPLITS
from fedse.worlds.foreign.openenv_client import OpenEnvServer
from fedse.worlds.foreign.openenv_wire import OpenEnvFailed
from fedse.worlds.foreign.tool_calls import written
from fedse.worlds.maze import Maze
from fedse.worlds.serving.server import WorldServer
from other_packages import environment_with

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1200)]
VERSION = "openenv==0.10.0"

CLIENT = """
import json, sys
from openenv.core.generic_client import GenericEnvClient

url, actions = sys.argv[1], json.loads(sys.argv[2])
seen = []
with GenericEnvClient(base_url=url).sync() as env:
    told = env.reset(split="test", index=3)
    seen.append([told.observation["text"], told.reward, told.done])
    try:
        env.step({"move": 1})
    except RuntimeError as error:
        seen.append(str(error))
    for action in actions:
        told = env.step({"action": action})
        seen.append([told.observation["text"], told.reward, told.done])
    seen.append(told.observation["success"])
    seen.append(env.state()["step_count"])
print(json.dumps(seen))
"""

# OpenEnv's wheel has no environment with tasks; this one is made of its own classes and served by its own server.
WITH_TASKS = """
import sys
import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

class Guess(Action):
    number: int
    hard: bool = False

class Hint(Observation):
    hint: str

class Numbers(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def list_splits(self): return ["train", "test"]
    def num_tasks(self, split): return {"train": 16, "test": 5}[split]
    def get_task(self, split, index): return {"id": f"{split}-{index}"}
    def list_tasks(self, split): return [self.get_task(split, i) for i in range(self.num_tasks(split))]
    def reset(self, seed=None, episode_id=None, split="train", index=0, **kwargs):
        self.number = index + 100 * (split == "test")
        return Hint(hint=f"{split} {index}")
    def step(self, action, timeout_s=None, **kwargs):
        if action.number < 0:
            raise OSError("the environment broke")
        right = action.number == self.number
        return Hint(hint="right" if right else "wrong", reward=float(right), done=right)
    @property
    def state(self): return State()

app = create_app(Numbers, Guess, Hint, env_name="numbers", max_concurrent_envs=2)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""

WITH_TOOLS = """
import sys
import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State

class Counter(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self):
        server = FastMCP("counter")
        @server.tool
        def add(number: int) -> dict:
            '''Add a number.'''
            self.sum += number
            return {"sum": self.sum}
        super().__init__(server)
    def reset(self, seed=None, episode_id=None, **kwargs):
        self.sum = 0
        return Observation(metadata={"goal": seed % 5})
    def _step_impl(self, action, timeout_s=None, **kwargs):
        raise ValueError("only tools here")
    @property
    def state(self): return State()

app = create_app(Counter, CallToolAction, CallToolObservation, env_name="counter", max_concurrent_envs=1)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of a virtual environment with OpenEnv's package."""
    return environment_with(VERSION, folder=tmp_path_factory.mktemp("openenv")).parent


@pytest.fixture(scope="module")
def maze() -> Iterator[WorldServer]:
    server = WorldServer("maze", Maze, "127.0.0.1", 0, 4)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def clean() -> dict[str, str]:
    """The environment of this process without paths of ours."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def served(command: list[Any], folder: Path, port: int) -> Iterator[str]:
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(command, cwd=folder, env=clean())
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=2).close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_their_client_plays_our_world(programs: Path, maze: WorldServer) -> None:
    world = Maze()
    first, _ = world.reset(options={"task": world.tasks("test")[3].id})
    expected: list[Any] = [[first, None, False], "Server error: Invalid message (code: VALIDATION_ERROR)"]
    actions = ["dance"]
    while True:
        seen, reward, terminated, truncated, info = world.step(actions[-1])
        expected.append([seen, reward, terminated or truncated])
        if terminated or truncated:
            break
        actions.append(world.expert()[1])
    expected += [info["success"], len(actions)]
    command = [programs / "python", "-c", CLIENT, maze.url, json.dumps(actions)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=clean())
    assert json.loads(done.stdout.splitlines()[-1]) == expected and info["success"] is True


def test_their_validator_passes_our_server(programs: Path, maze: WorldServer) -> None:
    command = [programs / "openenv", "validate", "--json", "--url", maze.url]
    done = subprocess.run(command, capture_output=True, text=True, env=clean())
    assert done.returncode == 0 and json.loads(done.stdout)["passed"] is True, done.stdout + done.stderr


def test_our_client_plays_the_environment_that_their_package_makes(programs: Path, tmp_path: Path) -> None:
    subprocess.run([programs / "openenv", "init", "echo_world", "-o", tmp_path], check=True, env=clean())
    port = free_port()
    command = [programs / "python", "-m", "echo_world.server.app", "--host", "127.0.0.1", "--port", str(port)]
    for url in served(command, tmp_path, port):
        world = OpenEnvServer(url=url, text="echoed_message", turn_limit=3)
        assert "An action is one line that gives the message (string): Message to echo back" in world.rules
        assert [len(world.tasks(split)) for split in SPLITS] == [600, 210, 210]
        for _ in range(3):  # The server has one place; an episode that is over gives it back.
            assert world.reset(options={"task": "test-0"})[0] == "Echo World environment ready!"
            assert world.step("hello") == ("hello", 0.5, False, False, {"valid": True})
            assert world.step("")[4] == {"valid": False}
            last = world.step("a longer line")
            assert last[2:] == (False, True, {"valid": True, "success": True, "score": 1.5})
        world.reset(options={"task": "test-0"})
        with pytest.raises(OpenEnvFailed, match="no room for another session"):
            OpenEnvServer(url=url).reset(options={"task": "test-1"})
        world.close()
        whole = OpenEnvServer(url=url)
        assert json.loads(whole.reset(options={"task": "test-1"})[0])["message_length"] == 0
        whole.close()


def test_our_client_takes_tasks_from_their_task_provider(programs: Path, tmp_path: Path) -> None:
    script, port = tmp_path / "with_tasks.py", free_port()
    script.write_text(WITH_TASKS)
    for url in served([programs / "python", script, str(port)], tmp_path, port):
        world = OpenEnvServer(url=url, turn_limit=4)
        assert [len(world.tasks(split)) for split in SPLITS] == [12, 4, 5]
        ids = [task.id for split in SPLITS for task in world.tasks(split)]
        assert len(set(ids)) == 21
        assert world.reset(options={"task": "test-2"})[0] == "test 2"
        wrong, *_, info = world.step("two")
        assert info == {"valid": False} and "number: Input should be a valid integer" in wrong
        assert world.step("3")[0] == "wrong"
        saved = world.save()
        assert world.step("102")[2:] == (True, False, {"valid": True, "success": True, "score": 1.0})
        world.restore(saved)
        with pytest.raises(OpenEnvFailed, match="EXECUTION_ERROR: the environment broke"):
            world.step("-1")
        assert world.reset(options={"task": "test-2"})[0] == "test 2"
        world.close()


def test_our_client_calls_the_tools_of_an_environment_that_speaks_mcp(programs: Path, tmp_path: Path) -> None:
    script, port = tmp_path / "with_tools.py", free_port()
    script.write_text(WITH_TOOLS)
    for url in served([programs / "python", script, str(port)], tmp_path, port):
        world = OpenEnvServer(url=url)
        assert "add(number: integer)\n    Add a number." in world.rules
        first, _ = world.reset(options={"task": "test-3"})
        assert json.loads(first) == {"goal": 3}
        assert json.loads(world.step(written("add", number=2))[0]) == {"sum": 2}
        assert json.loads(world.step(written("add", number=5))[0]) == {"sum": 7}
        seen, *_, info = world.step(written("add", nothing=1))
        assert info == {"valid": False} and "number" in seen
        assert world.step("7")[4] == {"valid": False}
        world.close()
