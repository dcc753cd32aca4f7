"""OpenEnv both ways: our server played by our client, and a server of the test that misbehaves in every way it can."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fedse.errors import BadInput
from fedse.types import SPLITS
from fedse.worlds.check import check
from fedse.worlds.foreign.openenv_client import OpenEnvServer
from fedse.worlds.foreign.openenv_tasks import dealt
from fedse.worlds.foreign.openenv_wire import OpenEnvFailed
from fedse.worlds.foreign.tool_calls import written
from fedse.worlds.maze import Maze
from fedse.worlds.serving.routes import Routes
from fedse.worlds.serving.server import WorldServer
from fedse.worlds.serving.session import Session
from fedse.worlds.world import Turn, World

pytest.importorskip("websockets")


def running(server: WorldServer) -> Iterator[WorldServer]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def maze() -> Iterator[WorldServer]:
    yield from running(WorldServer("maze", Maze, "127.0.0.1", 0, 4))


def client(server: WorldServer, **options: Any) -> OpenEnvServer:
    given = {"url": server.url, "text": "text", "turn_limit": Maze().turn_limit, "actions": ["move up", "move left"]}
    return OpenEnvServer(**{**given, **options})


def freed(server: WorldServer) -> bool:
    """Whether no session is left, a moment after the last client went."""
    for _ in range(100):
        if server.sessions == 0:
            return True
        time.sleep(0.02)
    return False


# Our server, our client


def test_a_served_world_is_the_same_world_for_its_client(maze: WorldServer) -> None:
    own, served = Maze(), client(maze)
    assert served.rules == own.rules
    assert [t.id for t in served.tasks("test")][:2] == ["test-0", "test-1"]
    assert [len(served.tasks(split)) for split in SPLITS] == [len(own.tasks(split)) for split in SPLITS]
    for place in (0, 7):
        first, _ = own.reset(options={"task": own.tasks("validation")[place].id})
        assert served.reset(options={"task": f"validation-{place}"})[0] == first
        assert served.step("dance")[4] == {"valid": False}
        own.step("dance")
        while True:
            action = own.expert()[1]
            expected, seen = own.step(action), served.step(action)
            assert (seen[0], seen[2]) == (expected[0], expected[2])
            if expected[2]:
                break
        assert seen[4] == expected[4]
    assert freed(maze), "a session lasts as long as its episode"


@pytest.mark.slow
def test_the_client_keeps_the_promises_of_a_world_and_leaves_no_session_behind(maze: WorldServer) -> None:
    promises = ("description", "splits", "expert", "invalid actions and turn limit", "errors", "save and restore")
    findings = check(lambda: client(maze, turn_limit=3, train_tasks=20), promises)
    assert [finding for finding in findings if not finding.passed] == []
    dropped = client(maze)
    dropped.reset(options={"task": "train-0"})
    assert maze.sessions >= 1
    del dropped
    gc.collect()
    assert freed(maze)


def test_a_length_that_is_no_length_is_refused(maze: WorldServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", maze.server_port, timeout=10)
    connection.request("POST", "/reset", b"", {"Content-Length": "9" * 5000})
    assert connection.getresponse().status == 413
    connection.close()


def test_the_turn_limit_of_the_served_world_ends_the_episode(maze: WorldServer) -> None:
    world = client(maze, turn_limit=99)
    world.reset(options={"task": "test-0"})
    turns = 0
    while True:
        turns += 1
        _, _, terminated, _, info = world.step("dance")
        if terminated:
            break
    assert turns == Maze().turn_limit and info["success"] is False


def test_a_server_has_as_many_places_as_it_says(maze: WorldServer) -> None:
    worlds = [client(maze) for _ in range(5)]
    for world in worlds[:4]:
        world.reset(options={"task": "test-0"})
    with pytest.raises(OpenEnvFailed, match=r"no room for another session .*`slots` of the policy"):
        worlds[4].reset(options={"task": "test-0"})
    worlds[0].close()
    worlds[4].reset(options={"task": "test-0"})
    for world in worlds:
        world.close()
    assert freed(maze)


def ask(session: Session, kind: str, **data: Any) -> dict[str, Any]:
    return json.loads(session.answer(json.dumps({"type": kind, "data": data})) or "null")


def test_messages_of_a_session() -> None:
    session = Session(Maze)
    assert ask(session, "step", action="move up")["data"]["code"] == "EXECUTION_ERROR"
    told = ask(session, "reset", split="test", index=2, episode_id="mine")
    assert told["type"] == "observation" and set(told["data"]) == {"observation", "reward", "done", "metadata"}
    assert told["data"]["metadata"]["rules"] == Maze().rules
    task = Maze().tasks("test")[2].id
    assert json.loads(session.answer('{"type": "state"}') or "") == {
        "type": "state",
        "data": {"episode_id": "mine", "step_count": 0, "task": task},
    }
    assert ask(session, "reset", task=task)["data"]["observation"]["text"] == told["data"]["observation"]["text"]
    assert ask(session, "reset", seed=3) == ask(Session(Maze), "reset", seed=3)
    assert ask(session, "step", action="dance")["data"]["observation"]["valid"] is False
    for data, code in (
        ({}, "VALIDATION_ERROR"),
        ({"action": 3}, "VALIDATION_ERROR"),
        ({"action": "move up", "speed": 3}, "VALIDATION_ERROR"),
    ):
        assert ask(session, "step", **data)["data"]["code"] == code
    assert ask(session, "reset", split="test")["data"]["code"] == "EXECUTION_ERROR"
    assert "no task 9999" in ask(session, "reset", split="test", index=9999)["data"]["message"]
    assert ask(session, "reset", split="dev", index=0)["data"]["code"] == "VALIDATION_ERROR"
    assert ask(session, "dance")["data"]["code"] == "UNKNOWN_TYPE"
    for raw, code in (("{", "INVALID_JSON"), ("3", "UNKNOWN_TYPE"), ('{"type": "step"}', "VALIDATION_ERROR")):
        assert json.loads(session.answer(raw) or "")["data"]["code"] == code
    assert session.answer('{"type": "close"}') is None


class Fragile(Maze):
    """Breaks at the word."""

    def act(self, action: str) -> Turn:
        if action == "break":
            raise OSError("broken")
        return super().act(action)


def test_a_world_that_breaks_is_told_and_replaced() -> None:
    session = Session(Fragile)
    ask(session, "reset", seed=0)
    assert ask(session, "step", action="break")["data"] == {"message": "OSError: broken", "code": "EXECUTION_ERROR"}
    assert ask(session, "step", action="move up")["data"]["code"] == "EXECUTION_ERROR"
    assert ask(session, "reset", seed=0)["type"] == "observation"


def test_what_is_told_over_http(maze: WorldServer) -> None:
    def get(path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(maze.url + path, data=data, headers=headers)) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code

    assert get("/health") == {"status": "healthy"}
    assert get("/list_environments") == ["maze"]
    assert get("/schema")["action"]["required"] == ["action"]
    assert get("/metadata")["description"] == Maze().rules
    assert get("/Maze/splits") == [{"name": split, "type": split} for split in SPLITS]
    tasks = Maze().tasks("validation")
    assert get("/maze/num_tasks", {"split": "validation"}) == {"num_tasks": len(tasks)}
    assert get("/maze/task", {"split": "validation", "index": 4})["task"]["id"] == tasks[4].id
    named = [task["id"] for task in get("/maze/task_range", {"split": "validation", "start": -2})["tasks"]]
    assert named == [task.id for task in tasks[-2:]]
    assert len(get("/maze/tasks", {"split": "validation"})["tasks"]) == len(tasks)
    assert get("/reset", {"task": tasks[0].id})["done"] is False
    assert get("/maze/task", {"split": "validation", "index": 10**6}) == 400
    assert get("/maze/task", {"split": "dev", "index": 0}) == 422
    assert get("/wordle/splits") == 404 and get("/nothing") == 404
    assert get("/step", {"action": {"action": "move up"}}) == 500
    assert get("/mcp", {"id": 4})["error"]["code"] == -32601
    assert get("/health", Origin="http://evil.example") == 403
    assert set(get("/openapi.json")["paths"]) >= {"/reset", "/step", "/state", "/maze/num_tasks"}


def test_web_pages_get_no_session(maze: WorldServer) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    address = maze.url.replace("http", "ws") + "/ws"
    with pytest.raises(InvalidStatus, match="403"), connect(address, origin="http://evil.example", proxy=None):
        pass
    with connect(address, proxy=None) as connection:
        # A message in pieces, as large ones come.
        connection.send(['{"type": "re', 'set", "data": {"seed": 1}}'])
        assert json.loads(connection.recv(5))["type"] == "observation"
    assert freed(maze)


def test_a_server_that_cannot_be_started_is_told(maze: WorldServer) -> None:
    with pytest.raises(BadInput, match="choose another --host or --port"):
        WorldServer("maze", Maze, "127.0.0.1", maze.server_port, 1)

    def unmade() -> World:
        raise OSError("no map")

    for server in running(WorldServer("maze", unmade, "127.0.0.1", 0, 1)):
        world = client(server, description="Action: x", splits={})
        world.__dict__["_listed"] = None
        with pytest.raises(OpenEnvFailed, match="FACTORY_ERROR: OSError: no map"):
            world.reset(options={"task": "test-0"})
        assert freed(server)


# A server that is not ours


class Odd(Session):
    """A lock whose number is the seed modulo 3, in another server's words; misbehaves when told to."""

    trouble = ""
    seeds: list[int] = []  # noqa: RUF012

    def __init__(self, make_world: Any) -> None:
        self.number = -1

    def close(self) -> None: ...

    def answer(self, raw: str) -> str | None:
        message = json.loads(raw)
        if message["type"] == "close":
            return None
        data = message["data"]
        match self.trouble:
            case "slow":
                time.sleep(0.6)
            case "hang up":
                return None
            case "malformed":
                return "{broken"
            case "list":
                return "[1]"
            case "mute":
                return json.dumps({"type": "observation", "data": {"done": False}})
            case "error":
                return json.dumps({"type": "error", "data": {"message": "boom", "code": "EXECUTION_ERROR"}})
            case "nan":
                return '{"type": "observation", "data": {"observation": {"x": ""}, "reward": NaN, "done": false}}'
            case "over":
                return self.shown({"hint": "?"}, None, True)
        if message["type"] == "reset":
            self.seeds.append(data["seed"])
            self.number = data["seed"] % 3
            return self.shown({"hint": f"0 to 2, {data.get('colour')}", "tries": 3}, None, False)
        if set(data) != {"number", "who"} or type(data["number"]) is not int:
            errors = [{"loc": ["number"], "msg": "Input should be a valid integer"}]
            told = {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": errors}
            return json.dumps({"type": "error", "data": told})
        right = data["number"] == self.number
        return self.shown({"hint": "open" if right else "shut", "tries": 2}, 0.5 + 0.5 * right, right)

    @staticmethod
    def shown(observation: dict[str, Any], reward: float | None, done: bool) -> str:
        told = {"observation": {**observation, "metadata": {"a": 1}}, "reward": reward, "done": done}
        return json.dumps({"type": "observation", "data": told})


ACTION = {
    "type": "object",
    "properties": {
        "metadata": {"type": "object"},
        "who": {"type": "string"},
        "number": {"$ref": "#/$defs/Number", "description": "The number to try."},
    },
    "$defs": {"Number": {"type": "integer", "enum": [0, 1, 2]}},
    "required": ["who", "number"],
}


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Odd]]:
    import fedse.worlds.serving.server as module

    monkeypatch.setattr(module, "Session", Odd)
    answers: dict[str, tuple[int, Any]] = {
        "/schema": (200, {"action": ACTION}),
        "/metadata": (200, {"name": "lock", "description": "A lock."}),
        "/list_environments": (200, ["lock"]),
        "/lock/splits": (501, {"detail": "not supported"}),
    }
    monkeypatch.setattr(Routes, "answer", lambda self, method, path, body: answers.get(path, (404, {})))
    Odd.trouble, Odd.seeds = "", []
    for server in running(WorldServer("lock", Maze, "127.0.0.1", 0, 2)):
        Odd.url, Odd.answers = server.url, answers  # type: ignore[attr-defined]
        yield Odd


def lock(odd: Any, **options: Any) -> OpenEnvServer:
    return OpenEnvServer(**{"url": odd.url, "action": {"who": "me"}, "turn_limit": 4, "timeout": 0.3, **options})


def test_a_foreign_server_is_described_from_its_schema_and_played_by_seeds(odd: Any) -> None:
    world = lock(odd, reset={"colour": "red"})
    assert world.rules.startswith(
        "A lock.\nAn action is one line that gives the number: The number to try. One of: 0, 1, 2."
    )
    assert "who" not in world.rules
    assert {json.loads(world.trivial(draw)) for draw in (0.0, 0.4, 0.9)} == {0, 1, 2}
    first, _ = world.reset(options={"task": "train-5"})
    assert json.loads(first) == {"hint": "0 to 2, red", "tries": 3}
    (seed,) = odd.seeds
    seen, _, _, _, info = world.step("two")
    assert info == {"valid": False} and "number: Input should be a valid integer" in seen and "hint" in seen
    wrong, right = str((seed + 1) % 3), str(seed % 3)
    assert world.step(wrong)[1:3] == (0.5, False)
    assert world.step(right)[2:] == (True, False, {"valid": True, "success": True, "score": 1.5})
    assert lock(odd, text="hint", field="number").reset(options={"task": "train-5"})[0] == "0 to 2, None"
    for split in SPLITS:
        world.reset(options={"task": f"{split}-1"})
    assert len(set(odd.seeds[-3:])) == 3


def test_whole_actions_are_written_as_json_where_more_than_one_field_is_required(odd: Any) -> None:
    world = lock(odd, action={}, actions=['{"who": "me", "number": 1}'])
    assert "An action is a JSON object on one line. Its fields:\n- who (string)\n- number" in world.rules
    world.reset(options={"task": "test-0"})
    for wrong, told in (("1", "not a JSON object"), ("open", "not JSON"), ("", "empty"), ('{"number": 1}', "integer")):
        seen, *_, info = world.step(wrong)
        assert told in seen and info["valid"] is False
    world.reset(options={"task": "test-0"})
    assert world.step(json.dumps({"who": "me", "number": odd.seeds[0] % 3}))[4]["success"] is True
    with pytest.raises(BadInput, match="cannot be guessed"):
        lock(odd, action={}).trivial(0.5)


def test_the_sum_of_rewards_can_decide_and_also_the_turn_limit_is_an_end(odd: Any) -> None:
    world = lock(odd, reward="sum", turn_limit=2)
    world.reset(options={"task": "test-0"})
    wrong = str((odd.seeds[0] + 1) % 3)
    world.step(wrong)
    assert world.step(wrong)[2:] == (False, True, {"valid": True, "success": True, "score": 1.0})
    enough = lock(odd, reward="sum", success_reward=0.5, turn_limit=2)
    enough.reset(options={"task": "test-0"})
    enough.step(wrong)
    assert enough.step("two")[4] == {"valid": False, "success": True, "score": 0.5}


class Workshop(Odd):
    """An environment whose actions are calls of tools, in the words of OpenEnv 0.10."""

    def answer(self, raw: str) -> str | None:
        message = json.loads(raw)
        data = message.get("data", {})
        match message["type"], data.get("type"), data.get("tool_name"):
            case "close", _, _:
                return None
            case "reset", _, _:
                return self.shown({}, 0.0, False)
            case _, "list_tools", _ if self.trouble == "no tools":
                errors = {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": []}
                return json.dumps({"type": "error", "data": errors})
            case _, "list_tools", _:
                about = {"type": "integer", "enum": [1, 2], "description": "How hard."}
                schema = {"properties": {"force": about, "say": {"type": "string"}}, "required": ["force"]}
                return self.shown(
                    {"tools": [{"name": "hit", "description": "Hit.", "input_schema": schema}]}, None, False
                )
            case _, "call_tool", "hit" if self.trouble == "transport":
                error = {"error_type": "transport_error", "message": "the line is dead"}
                return self.shown({"tool_name": "hit", "result": None, "error": error}, None, False)
            case _, "call_tool", "hit" if data["arguments"].get("force") not in (1, 2):
                error = {"error_type": "invalid_args", "message": "force is missing"}
                return self.shown({"tool_name": "hit", "result": None, "error": error}, None, False)
            case _, "call_tool", "hit":
                done = data["arguments"]["force"] == 2
                result = {"content": [{"type": "text", "text": "broken" if done else "a dent"}], "is_error": False}
                return self.shown({"tool_name": "hit", "result": result, "error": None}, float(done), done)
        return self.shown({"tool_name": "?", "result": "said as it is", "error": None}, 0.0, False)


def test_an_environment_of_tools_is_played_by_calls(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedse.worlds.serving.server as module

    monkeypatch.setattr(module, "Session", Workshop)
    fields = {"tool_name": {"type": "string"}, "arguments": {"type": "object"}, "type": {"const": "call_tool"}}
    odd.answers["/schema"] = (200, {"action": {"properties": fields, "required": ["tool_name"]}})
    world = lock(odd, action={}, turn_limit=6)
    first, _ = world.reset(options={"task": "test-0"})
    assert json.loads(first) == {"a": 1}, "an observation without fields tells its metadata"
    assert "hit(force: integer, say: string (optional))\n    Hit.\n    force: How hard." in world.rules
    assert 'one line: {"tool": "NAME", "args": {...}}' in world.rules
    assert {world.trivial(0.1), world.trivial(0.9)} == {written("hit", force=1), written("hit", force=2)}
    for wrong, told in (
        ("hit", "not a call"),
        (written("kick"), "no tool 'kick'"),
        (written("hit"), "force is missing"),
    ):
        seen, *_, info = world.step(wrong)
        assert told in seen and info == {"valid": False}
    assert world.step(written("hit", force=1))[0] == "a dent"
    assert world.step(written("hit", force=2)) == (
        "broken",
        1.0,
        True,
        False,
        {"valid": True, "success": True, "score": 1.0},
    )
    Workshop.trouble = "transport"
    world.reset(options={"task": "test-0"})
    with pytest.raises(OpenEnvFailed, match="the line is dead"):
        world.step(written("hit", force=1))
    Workshop.trouble = "no tools"
    plain = lock(odd, action={})
    assert "An action is one line that gives the tool_name" in plain.rules
    Workshop.trouble = ""
    by_name = lock(odd, action={"type": "call"}, field="tool_name")
    by_name.reset(options={"task": "test-0"})
    assert by_name.step("anything")[0] == "said as it is"


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("slow", "no answer within 0.3 s"),
        ("hang up", "it closed the connection"),
        ("malformed", "not JSON"),
        ("nan", "not JSON"),
        ("list", "no observation"),
        ("mute", "holds no observation"),
        ("error", "it reports EXECUTION_ERROR: boom"),
    ],
)
def test_trouble_is_an_error_and_the_next_episode_starts_afresh(odd: Any, trouble: str, told: str) -> None:
    world = lock(odd)
    world.reset(options={"task": "test-0"})
    odd.trouble = trouble
    with pytest.raises(OpenEnvFailed, match=told):
        world.step("1")
    odd.trouble = ""
    assert "0 to 2" in world.reset(options={"task": "test-0"})[0]
    world.close()


def test_an_episode_that_is_over_at_once_is_an_error_and_so_is_a_field_that_is_not_there(odd: Any) -> None:
    odd.trouble = "over"
    with pytest.raises(OpenEnvFailed, match="before the first action"):
        lock(odd).reset(options={"task": "test-0"})
    odd.trouble = ""
    with pytest.raises(OpenEnvFailed, match="no field 'prompt', only hint, tries"):
        lock(odd, text="prompt").reset(options={"task": "test-0"})
    with pytest.raises(BadInput, match="no field 'colour'"):
        _ = lock(odd, field="colour").rules
    with pytest.raises(BadInput, match="`splits` has no effect"):
        lock(odd, splits={"test": "dev"}).tasks("test")


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"/schema": (500, {})}, "status 500"),
        ({"/schema": (404, {})}, "see whether it is an OpenEnv server"),
        ({"/lock/splits": (200, ["a"]), "/lock/num_tasks": (200, {"num_tasks": "many"})}, "how many tasks"),
    ],
)
def test_a_server_that_tells_nonsense_of_itself(odd: Any, answers: dict[str, Any], told: str) -> None:
    odd.answers.update(answers)
    with pytest.raises(OpenEnvFailed, match=told):
        _ = lock(odd).tasks("test") and lock(odd).rules


def test_a_server_that_is_not_there_is_told_in_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        world = OpenEnvServer(url=f"http://127.0.0.1:{taken.getsockname()[1]}", timeout=1.0)
        asked: tuple[Callable[[], Any], ...] = (lambda: world.rules, lambda: world.tasks("test"), world._server.session)
        for ask_it in asked:
            with pytest.raises(OpenEnvFailed, match=r"no (connection|WebSocket).*see whether it runs") as told:
                ask_it()
            assert "\n" not in str(told.value)
    for wrong in ("127.0.0.1:8000", "ws://127.0.0.1:8000", ""):
        with pytest.raises(BadInput):
            OpenEnvServer(url=wrong)


# Tasks


@pytest.mark.parametrize(
    ("offered", "named", "sizes"),
    [
        ({"train": 80, "validation": 7, "test": 9}, {}, (80, 7, 9)),
        ({"train": 80, "test": 9}, {}, (60, 20, 9)),
        ({"train": 100}, {}, (60, 20, 20)),
        ({"everything": 100}, {}, (60, 20, 20)),
        ({"dev": 40, "gold": 8}, {"train": "dev", "validation": "dev", "test": "gold"}, (30, 10, 8)),
        ({"train": 80, "dev": 5, "test": 9}, {"validation": "dev"}, (80, 5, 9)),
    ],
)
def test_tasks_of_a_server_are_dealt_out_without_overlap(
    offered: dict[str, int], named: dict[Any, str], sizes: tuple[int, ...]
) -> None:
    ids = dealt(offered, named)
    assert tuple(len(ids[split]) for split in SPLITS) == sizes
    assert len({task for own in ids.values() for task in own}) == sum(sizes)


def test_splits_that_cannot_be_dealt_out_are_told() -> None:
    for offered, named, told in (
        ({"dev": 4, "gold": 8}, {}, "say in `splits`"),
        ({"train": 80, "test": 9}, {"validation": "dev"}, "no split 'dev'"),
        ({"train": 3}, {}, "only 3 tasks"),
    ):
        with pytest.raises(BadInput, match=told):
            dealt(offered, named)


def test_pools_are_different_parts_of_the_listed_training_tasks(maze: WorldServer) -> None:
    pools = [client(maze, train_tasks=200, pool=number).tasks("train") for number in (0, 1)]
    assert [len(pool) for pool in pools] == [200, 200] and not set(pools[0]) & set(pools[1])
    with pytest.raises(BadInput, match="pool 9 is empty"):
        client(maze, train_tasks=200, pool=9).tasks("train")
