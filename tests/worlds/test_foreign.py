"""Worlds made from other people's environments, played for real: the libraries in process, AgentGym over HTTP."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import gymnasium
import numpy as np
import pytest

from fedse.errors import BadInput
from fedse.types import SPLITS
from fedse.worlds.check import check
from fedse.worlds.foreign.agentgym_client import AgentGymFailed, AgentGymServer
from fedse.worlds.foreign.gymnasium_text import GymnasiumText
from fedse.worlds.foreign.reasoning_gym_task import ReasoningGymTask
from fedse.worlds.foreign.textarena_game import TextArenaGame
from fedse.worlds.foreign.toy_text import readable
from fedse.worlds.reference import floor
from fedse.worlds.world import World

PROMISES_WITHOUT_PLAY = ("description", "splits", "expert", "invalid actions and turn limit", "legal actions")


def played(world: World, task: str, draws: int = 0) -> list[tuple[Any, ...]]:
    """A random episode, or what is left of one, from draw number `draws` on."""
    turns: list[tuple[Any, ...]] = []
    if draws == 0:
        turns.append(world.reset(options={"task": task}))
    generator = random.Random(task)
    numbers = [generator.random() for _ in range(world.turn_limit)]
    for number in numbers[draws:]:
        turns.append(world.step(world.trivial(number)))
        if turns[-1][2] or turns[-1][3]:
            break
    return turns


def keeps_its_promises(make: Any) -> None:
    """Repeatable, silent, without trace in the global generators, and able to go on from a saved state."""
    broken = [finding for finding in check(make, PROMISES_WITHOUT_PLAY) if not finding.passed]
    assert broken == []
    world = make()
    for split in SPLITS:
        task = world.tasks(split)[1].id
        before = random.getstate(), repr(np.random.get_state())
        whole = played(world, task)
        random.seed(task)
        assert played(make(), task) == whole
        random.setstate(before[0])
        played(world, task)
        assert (random.getstate(), repr(np.random.get_state())) == before
        if len(whole) > 2:
            world.reset(options={"task": task})
            world.step(world.trivial(random.Random(task).random()))
            saved = world.save()
            played(world, world.tasks("train")[0].id)
            other = make()
            other.restore(json.loads(json.dumps(saved)))
            assert played(other, task, draws=1) == whole[2:]
    with pytest.raises(BadInput):
        world.reset(options={"task": "train-x"})


# Gymnasium


@pytest.mark.slow
@pytest.mark.parametrize("env", ["FrozenLake-v1", "CliffWalking-v1", "Blackjack-v1"])
def test_toy_text_environments_are_worlds(env: str) -> None:
    keeps_its_promises(lambda: GymnasiumText(env=env, turn_limit=8, train_tasks=5))


def test_frozen_lake_reads_like_a_game_and_can_be_won() -> None:
    world = GymnasiumText(env="FrozenLake-v1", env_options={"is_slippery": False})
    assert world.turn_limit == 100 and "left, down, right, up" in world.rules
    first, _ = world.reset(options={"task": "test-0"})
    assert first == "[S]FFF\nFHFH\nFFFH\nHFFG"
    observation, _, _, _, info = world.step("fly")
    assert info == {"valid": False} and observation.startswith("That is not an action.") and first in observation
    for action in ("Down.", "down", "right", "right", "down"):
        assert world.step(action)[2] is False
    observation, score, terminated, _, info = world.step("right")
    assert (score, terminated, info["success"]) == (1.0, True, True) and observation.endswith("HFF[G]")
    world.reset(options={"task": "test-0"})
    world.step("down")
    assert world.step("right")[4]["success"] is False
    with pytest.raises(BadInput, match="no expert"):
        world.expert()
    world.close()


def test_taxi_tells_in_words_what_it_draws_in_colours() -> None:
    taxi = max(name for name in gymnasium.registry if name.startswith("Taxi-v"))
    world = GymnasiumText(env=taxi)
    first, _ = world.reset(options={"task": "test-0"})
    assert first.startswith("Taxi: row ") and "\x1b" not in first
    assert readable("\x1b[42m_\x1b[0m \x1b[34;1mB\x1b[0m") == "[_] (B)"


class Echo(gymnasium.Env[str, str]):
    """Say the word you hear."""

    action_space = gymnasium.spaces.Text(max_length=10)
    observation_space = gymnasium.spaces.Text(max_length=10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        # A draw from the global generator, as careless libraries do.
        self.word = random.choice(["yes", "no"]) + str(self.np_random.integers(100))
        print("loading")  # noqa: T201
        return self.word, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "done", float(action == self.word), True, False, {}


def test_a_text_environment_given_as_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    def make() -> GymnasiumText:
        return GymnasiumText(env=f"{__name__}:Echo", actions=["yes1", "no2"], train_tasks=3)

    world = make()
    assert "Say the word you hear." in world.rules and world.turn_limit == 50
    words = [world.reset(options={"task": task.id})[0] for task in world.tasks("test")[:20]]
    random.seed(5)
    assert words == [make().reset(options={"task": task.id})[0] for task in world.tasks("test")[:20]]
    assert len({word.strip("0123456789") for word in words}) == 2
    assert world.step("")[4] == {"valid": False}
    assert world.step(words[-1])[4]["success"] is True
    assert capsys.readouterr().out == ""
    assert 0 <= floor(world, world.tasks("test")) < 0.2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"env": "FrozenLak-v1"}, "FrozenLake-v1"),
        ({"env": "FrozenLake-v1", "env_options": {"colour": 1}}, "env_options"),
        ({"env": "FrozenLake-v1", "actions": ["a", "b"]}, "has 4 actions"),
        ({"env": "Blackjack-v1", "observation": "drawing"}, "draws no text"),
        ({"env": "no_such_module:Class"}, "no class"),
        ({"env": "Pendulum-v1"}, "only Text and Discrete"),
    ],
)
def test_gymnasium_mistakes_are_told(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        _ = GymnasiumText(**options).rules


# TextArena


@pytest.mark.parametrize("game", ["GuessTheNumber-v0", "FrozenLake-v0-random"])
def test_textarena_games_are_worlds(game: str) -> None:
    pytest.importorskip("textarena")
    keeps_its_promises(lambda: TextArenaGame(game=game, turn_limit=8, train_tasks=5))


def test_textarena_game_is_won_by_the_number_and_part_of_the_reward_is_no_win() -> None:
    pytest.importorskip("textarena")
    world = TextArenaGame(game="GuessTheNumber-v0")
    first, _ = world.reset(options={"task": "test-0"})
    assert "between 1 and 20" in first and world.turn_limit == 10
    answer, _, _, _, info = world.step("hello")
    assert info == {"valid": False} and "invalid move" in answer
    low, high = 1, 20
    while True:
        guess = (low + high) // 2
        answer, score, terminated, _, info = world.step(str(guess))
        if terminated:
            break
        assert "[GAME]" not in answer and first not in answer
        low, high = (guess + 1, high) if "higher" in answer else (low, guess - 1)
    assert info["success"] is True and score == 1.0
    world.reset(options={"task": "test-0"})
    for _ in range(world.turn_limit):
        _, score, terminated, truncated, info = world.step("20" if guess != 20 else "1")
        if terminated or truncated:
            break
    assert info["success"] is False and float(score) < 1


def test_textarena_ends_at_invalid_moves_when_asked_to() -> None:
    pytest.importorskip("textarena")
    world = TextArenaGame(game="GuessTheNumber-v0", forgive_invalid=False)
    world.reset(options={"task": "test-0"})
    world.step("hello")
    _, _, terminated, _, info = world.step("hello")
    assert terminated and info["valid"] is False and info["success"] is False


def test_textarena_mistakes_are_told() -> None:
    pytest.importorskip("textarena")
    for game, complaint in (("Mastermnd-v0", "Mastermind-v0"), ("Nim-v0", "cannot be played here")):
        with pytest.raises(BadInput, match=complaint):
            _ = TextArenaGame(game=game).turn_limit


# reasoning-gym


def test_reasoning_gym_passes_the_whole_check() -> None:
    pytest.importorskip("reasoning_gym")
    findings = check(lambda: ReasoningGymTask(dataset="mini_sudoku", train_tasks=10))
    assert [finding for finding in findings if not finding.passed] == []


def test_reasoning_gym_scores_answers() -> None:
    pytest.importorskip("reasoning_gym")
    world = ReasoningGymTask(dataset="chain_sum", dataset_options={"min_terms": 2, "max_terms": 2})
    world.reset(options={"task": "test-0"})
    right = world.expert()[1]
    assert world.step(right)[4] == {"valid": True, "success": True, "score": 1.0}
    world.reset(options={"task": "test-0"})
    assert world.step(right + "1")[4]["success"] is False
    world.reset(options={"task": "test-0"})
    assert world.step(right.removeprefix("answer "))[4]["valid"] is False


def test_reasoning_gym_without_an_answer_has_no_expert_and_an_unreadable_answer_is_no_error() -> None:
    pytest.importorskip("reasoning_gym")
    world = ReasoningGymTask(dataset="graph_color", train_tasks=3)
    world.reset(options={"task": "test-0"})
    assert not world.has_expert and world.trivial(0.5) == "answer 0"
    with pytest.raises(BadInput, match="no expert"):
        world.expert()
    world = ReasoningGymTask(dataset="prime_factorization", train_tasks=3)
    world.reset(options={"task": "test-0"})
    assert world.step("answer dance wildly")[4] == {"valid": False, "success": False, "score": 0.0}
    with pytest.raises(BadInput, match="chain_sum"):
        ReasoningGymTask(dataset="chain_sun").reset(options={"task": "test-0"})
    with pytest.raises(BadInput, match="refuses"):
        ReasoningGymTask(dataset="chain_sum", dataset_options={"size_of_it": 3}).reset(options={"task": "test-0"})


# AgentGym


class Walk(BaseHTTPRequestHandler):
    """AgentGym's protocol over a corridor: the task is the distance to walk. Misbehaves when told to."""

    server: Corridors

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path, places = self.path.strip("/"), self.server.places
        if path == "create":
            places[len(places)] = 0
            self.answer(len(places) - 1 if self.server.webshop else {"id": len(places) - 1})
            return
        key = body["env_idx" if self.server.webshop else "id"]
        if path == "reset":
            places[key] = body["session_id" if self.server.webshop else "data_idx"] % 3 + 1
            seen = f"{places[key]} steps to go"
            self.answer([seen, None] if self.server.webshop else {"observation": seen, "reward": 0, "done": False})
        elif path == "step":
            places[key] -= body["action"] in ("step", "click[step]")
            seen, done = f"{places[key]} steps to go", places[key] == 0
            name = "state" if self.server.webshop else "observation"
            self.answer({name: seen, "reward": float(done), "score": float(done) / 2, "done": done})
        else:
            self.send_error(404)

    def do_GET(self) -> None:
        address = urlparse(self.path)
        left = self.server.places[int(parse_qs(address.query)["env_idx"][0])]
        seen: Any = f"{left} steps to go"
        self.answer({"has_search_bar": True, "clickables": ["step"]} if "available" in address.path else seen)

    def answer(self, content: Any) -> None:
        trouble = self.server.trouble
        if trouble == "slow":
            time.sleep(0.5)
        if trouble == "error":
            content = {"error": "no such game"}
        sent = b"{broken" if trouble == "malformed" else json.dumps(content).encode()
        self.send_response(500 if trouble == "500" else 200)
        self.end_headers()
        self.wfile.write(b'{"done": 1}' if trouble == "fields" else sent)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


class Corridors(ThreadingHTTPServer):
    trouble = ""
    webshop = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Walk)
        self.places: dict[int, int] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that no longer waits breaks the connection; that is what one test is about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server() -> Iterator[Corridors]:
    running = Corridors()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def corridor(server: Corridors, **options: Any) -> AgentGymServer:
    given = {"url": server.url, "environment": "textcraft", "actions": ["step", "wait"], "turn_limit": 6, **options}
    return AgentGymServer(**given)


def test_agentgym_episode_success_and_replay(server: Corridors) -> None:
    world = corridor(server)
    first, _ = world.reset(options={"task": "2"})
    assert first == "3 steps to go"
    assert world.step("step")[0] == "2 steps to go"
    saved = world.save()
    world.step("")
    world.step("step")
    assert world.step("step")[4] == {"valid": True, "success": True, "score": 1.0}
    other = corridor(server)
    other.restore(saved)
    other.step("step")
    assert other.step("step")[4]["success"] is True
    assert played(corridor(server), "7") == played(world, "7")
    assert len(server.places) == 3, "an instance asks for one environment and uses it again"
    world.close()


def test_agentgym_dialects(server: Corridors) -> None:
    half = corridor(server, environment="babyai")
    half.reset(options={"task": "0"})
    assert half.step("step")[4] == {"valid": True, "success": True, "score": 0.5}
    server.webshop, server.places = True, {}
    shop = corridor(server, environment="webshop", actions=[])
    assert shop.reset(options={"task": "0"})[0] == "1 steps to go"
    assert shop.legal_actions() == ["click[step]"] and shop.trivial(0.9) == "click[step]"
    assert shop.step("dance")[4] == {"valid": False}
    assert shop.step("click[step]")[4]["success"] is True


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("500", "status 500"),
        ("malformed", "not JSON"),
        ("slow", "no answer within 0.2 s"),
        ("error", "no such game"),
        ("fields", "no usable field"),
    ],
)
def test_agentgym_trouble_is_an_error_and_the_next_episode_starts_afresh(
    server: Corridors, trouble: str, told: str
) -> None:
    world = corridor(server, timeout=0.2)
    world.reset(options={"task": "2"})
    server.trouble = trouble
    with pytest.raises(AgentGymFailed, match=told):
        world.step("step")
    server.trouble = ""
    assert world.reset(options={"task": "2"})[0] == "3 steps to go"
    assert len(server.places) == 2


def test_agentgym_server_that_is_down() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        world = AgentGymServer(url=f"http://127.0.0.1:{taken.getsockname()[1]}", environment="maze", timeout=1.0)
        with pytest.raises(AgentGymFailed, match="no connection"):
            world.reset(options={"task": "0"})
    world.close()


def test_agentgym_tasks_come_from_ranges_or_a_file(tmp_path: Path) -> None:
    common = {"url": "http://127.0.0.1:1", "environment": "babyai"}
    world = AgentGymServer(**common, train=[20, 30], validation=[10, 12], test=[0, 5])
    assert [len(world.tasks(split)) for split in SPLITS] == [10, 2, 5]
    file = tmp_path / "ids.json"
    file.write_text(json.dumps({"train": list(range(10)), "test": [50, 51]}))
    world = AgentGymServer(**common, ids=file)
    assert [[task.id for task in world.tasks(split)][-2:] for split in SPLITS] == [["6", "7"], ["8", "9"], ["50", "51"]]
    for wrong in ({"train": [0, 50]}, {"test": [5, 5]}, {"ids": file, "test": [0, 3]}, {"url": "127.0.0.1"}):
        with pytest.raises(BadInput):
            AgentGymServer(**{**common, **wrong})
