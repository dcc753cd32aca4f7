"""The api policy against a real HTTP server in this process, which misbehaves in all the ways servers do."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from local_server import LocalServer, Said, refusal
from pydantic import ValidationError

import fedse
from clock import Clock
from fedse.errors import BadInput, RunConflict, ServerFailed, SwapFailed
from fedse.experience.buffer import read_file
from fedse.experience.export import export
from fedse.experiments.options import Experiment
from fedse.experiments.running import stored_experiment
from fedse.models.chat import ByteChat
from fedse.models.served import Served
from fedse.policies.api import ApiPolicy
from fedse.protocols import Reply
from fedse.rollouts.player import Player
from fedse.runs.folder import RunFolder
from fedse.servers.rate_limit import RateLimit, Taken
from fedse.starts.demonstrations import demonstrate
from fedse.types import Adapter, Episode, Outcome, Purpose, Sampling, Task
from fedse.worlds.maze import Maze
from fedse_command import command

pytest.importorskip("openai")

CHAT = ByteChat()
KEY = "sk-9f3a71-secret"


def policy(server: LocalServer, **options: Any) -> ApiPolicy:
    return ApiPolicy(Served(), **{"url": server.url, "model": "m", "retries": 2, "timeout": 10.0, **options})


def one_reply(server: LocalServer, **options: Any) -> Reply:
    answering = policy(server, **options)
    slot = answering.open(CHAT.opening("Rules."), Sampling(5, 1.0))
    answering.extend(slot, CHAT.turn("Go on."))
    [reply] = answering.ready()
    return reply


def make_maze() -> Maze:
    return Maze(mode="original", turn_limit=20)


def episode(task: str, number: int = 0, temperature: float = 1.0) -> Episode:
    return Episode("c", "maze", make_maze, Task(task), Purpose.EXPLORE, 1, number, Sampling(number, temperature))


def expert(number: int, body: dict[str, Any]) -> Said:
    """Plays the maze as its expert does."""
    observation = body["messages"][-1]["content"]
    return Said(EXPERT.get(observation, "Thought: I am lost.\nAction: move up"))


EXPERT = {
    step.observation: step.reply
    for split in ("train", "validation", "test")
    for task in make_maze().tasks(split)  # type: ignore[arg-type]
    for step in demonstrate("c", "maze", make_maze(), task, CHAT).steps
}


@pytest.mark.slow
def test_the_server_gets_the_conversation_as_messages_and_its_words_are_recorded() -> None:
    with LocalServer(expert) as server:
        playing = policy(server, slots=3, reply_tokens=50)
        played = Player(playing, CHAT, 100_000).play([episode(str(task), task, 0.5) for task in range(6)], "digest")
    assert {item.outcome for item in played} == {Outcome.SUCCESS}
    steps = sum(len(item.steps) for item in played)
    assert len(server.requests) == steps + 1, "one request for each step, and the first look at the server"
    for item in played:
        messages = CHAT.messages(item.token_ids)
        assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        assert [message["content"] for message in messages[3::2]] == [step.reply for step in item.steps]
        assert bytes(i for i, own in zip(item.token_ids, item.train_mask, strict=True) if own and i < 256).decode() == (
            "".join(step.reply for step in item.steps)
        )
        assert messages[:-1] in [request["messages"] for request in server.requests]
    asked = server.requests[1:]
    assert {(r["model"], r["temperature"], r["top_p"], r["max_tokens"]) for r in asked} == {("m", 0.5, 1.0, 50)}
    assert len({request["seed"] for request in asked}) == steps, "every reply has a seed of its own"
    assert all(0 <= request["seed"] < 2**31 for request in asked)
    usage = playing.usage
    assert (usage.prefilled, usage.prefilled_without_cache, usage.decoded, usage.uncounted) == (
        100 * steps,
        100 * steps,
        7 * steps,
        0,
    )


def test_seeds_depend_on_the_sampling_key_alone() -> None:
    seeds = []
    for _ in range(2):
        with LocalServer() as server:
            one_reply(server)
        seeds.append(server.requests[1]["seed"])
    assert seeds[0] == seeds[1]


def test_all_open_conversations_are_under_way_at_once() -> None:
    together = threading.Barrier(24)

    def behave(number: int, body: dict[str, Any]) -> Said:
        if number:
            together.wait(timeout=20)
        return Said()

    with LocalServer(behave) as server:
        answering = policy(server, slots=24, retries=0)
        for number in range(24):
            answering.extend(answering.open(CHAT.opening("Rules."), Sampling(number, 1.0)), CHAT.turn("Go on."))
        replies: list[Reply] = []
        while len(replies) < 24:
            replies += answering.ready()
    assert sorted(reply.slot for reply in replies) == list(range(24))
    assert answering.ready() == [], "nothing is due any more"


def test_a_quick_reply_does_not_wait_for_a_slow_one() -> None:
    release = threading.Event()

    def behave(number: int, body: dict[str, Any]) -> Said:
        if "slow" in body["messages"][-1]["content"]:
            release.wait(timeout=20)
        return Said()

    with LocalServer(behave) as server:
        answering = policy(server)
        slow, quick = (answering.open(CHAT.opening("Rules."), Sampling(number, 1.0)) for number in range(2))
        answering.extend(slow, CHAT.turn("Be slow."))
        answering.extend(quick, CHAT.turn("Be quick."))
        assert [reply.slot for reply in answering.ready()] == [quick]
        release.set()
        assert [reply.slot for reply in answering.ready()] == [slow]


def test_a_busy_server_is_asked_again_when_it_says_so() -> None:
    with LocalServer(lambda number, body: refusal(429, Retry_After="1") if number == 1 else Said()) as server:
        assert one_reply(server).ended
    assert len(server.times) == 3
    assert 1.0 <= server.times[2] - server.times[1] < 5


@pytest.mark.parametrize(
    "trouble", [refusal(500), refusal(503), Said(drop=True), Said(pause=1.0)], ids=["500", "503", "dropped", "late"]
)
def test_a_server_that_recovers_costs_nothing_but_time(trouble: Said) -> None:
    with LocalServer(lambda number, body: trouble if number == 1 else Said("fine")) as server:
        reply = one_reply(server, timeout=0.5)
    assert CHAT.text(reply.ids) == "fine"
    assert server.requests[1] == server.requests[2], "asked again in the same words"


FAULTS = [
    (refusal(500, "out of memory"), r"answered with status 500 .*out of memory"),
    (refusal(429), r"refuses more requests \(status 429\).*policy.requests_per_minute"),
    (refusal(401), r"refused the key \(status 401\): set policy.key_from"),
    (refusal(404), r"knows no model 'm'.*\(status 404\): check policy.model, and policy.url"),
    (Said(drop=True), r"cannot be reached or breaks off the connection.*check that it runs"),
    (Said(pause=1.0), r"did not answer within 0.3 seconds.*raise policy.timeout"),
    (Said(body=b"<html>Hello</html>", headers={"Content-Type": "text/html"}), r"is no chat completion.*/v1"),
    (Said(body=b"{not json"), r"is no chat completion"),
    (Said(body=b'{"choices": []}'), r"is no chat completion"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "sentence"), FAULTS, ids=[sentence[:24] for _, sentence in FAULTS])
def test_what_does_not_get_better_is_said_in_one_sentence(fault: Said, sentence: str) -> None:
    options = {"retries": 1, "timeout": 0.3}
    with LocalServer(lambda number, body: fault) as server:
        with pytest.raises(BadInput, match=sentence) as before:
            policy(server, **options)
        assert server.url in str(before.value)
        server.behaviour = lambda number, body: Said()
        answering = policy(server, **options)
        server.behaviour = lambda number, body: fault
        answering.extend(answering.open(CHAT.opening("Rules."), Sampling(0, 1.0)), CHAT.turn("Go on."))
        with pytest.raises(ServerFailed, match=sentence) as later:
            answering.ready()
    assert "the same command resumes" in str(later.value)
    assert "\n" not in str(later.value)


def test_no_server_at_the_address_is_said_before_anything_else() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(BadInput, match=rf"the server at {url} cannot be reached"):
        ApiPolicy(Served(), url=url, model="m", retries=0)


def test_a_reply_cut_at_its_length_goes_on_with_the_next_turn() -> None:
    with LocalServer(lambda number, body: Said("Thought: I was just", finish="length")) as server:
        playing = policy(server, slots=1)
        [cut] = Player(playing, CHAT, 100_000).play([episode("3")], "digest")
    assert len(cut.steps) == 20 and {step.reply for step in cut.steps} == {"Thought: I was just"}
    assert cut.invalid_actions == 20
    asked = server.requests[2]["messages"]
    assert asked[3] == {"role": "assistant", "content": "Thought: I was just"} and len(asked) == 5


def test_a_reply_without_text_or_with_half_a_character_is_a_reply() -> None:
    nothing = json.dumps(
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"}]}
    )
    half = nothing.replace("null", '"a\\ud83d"', 1)
    for body, text in ((nothing, ""), (half, "a?")):
        with LocalServer(lambda number, asked, body=body: Said(body=body.encode())) as server:  # type: ignore[misc]
            reply = one_reply(server)
        assert (CHAT.text(reply.ids), reply.ended) == (text, True)


def test_tokens_from_the_servers_cache_are_told_apart_and_missing_numbers_are_counted() -> None:
    cached = {"prompt_tokens": 80, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 60}}
    told = [None, cached, None]
    with LocalServer(lambda number, body: Said(usage=told[number])) as server:
        answering = policy(server)
        slot = answering.open(CHAT.opening("Rules."), Sampling(5, 1.0))
        for _ in range(2):
            answering.extend(slot, CHAT.turn("Go on."))
            answering.ready()
    usage = answering.usage
    assert (usage.prefilled, usage.prefilled_without_cache, usage.decoded, usage.uncounted) == (20, 80, 3, 1)


ANSWER: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    "usage",
    [
        {},
        "many",
        [1],
        {"prompt_tokens": 5},
        {"prompt_tokens": "5", "completion_tokens": "1"},
        {"prompt_tokens": -5, "completion_tokens": 1},
    ],
    ids=str,
)
def test_strange_token_counts_are_no_counts(usage: Any) -> None:
    body = json.dumps({"choices": [ANSWER], "usage": usage}).encode()
    with LocalServer(lambda number, asked: Said(body=body)) as server:
        answering = policy(server)
        answering.extend(answering.open(CHAT.opening("Rules."), Sampling(5, 1.0)), CHAT.turn("Go on."))
        [reply] = answering.ready()
    assert CHAT.text(reply.ids) == "fine"
    assert (answering.usage.prefilled, answering.usage.decoded, answering.usage.uncounted) == (0, 0, 1)


def test_a_cache_cannot_give_more_tokens_than_were_read() -> None:
    for details, prefilled in (({"cached_tokens": 50}, 0), ("all of them", 5), ({"cached_tokens": None}, 5)):
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": details}
        body = json.dumps({"choices": [ANSWER], "usage": usage}).encode()
        with LocalServer(lambda number, asked, body=body: Said(body=body)) as server:  # type: ignore[misc]
            answering = policy(server)
            answering.extend(answering.open(CHAT.opening("Rules."), Sampling(5, 1.0)), CHAT.turn("Go on."))
            answering.ready()
        assert answering.usage.prefilled == prefilled


@pytest.mark.parametrize(
    "choices",
    [
        {"first": ANSWER},
        [None],
        "fine",
        [{**ANSWER, "message": "fine"}],
        [{**ANSWER, "message": {"role": "assistant", "content": 7}}],
        [{**ANSWER, "message": {"role": "assistant", "content": [{"type": "text", "text": "fine"}]}}],
    ],
    ids=range(6),
)
def test_an_answer_of_another_form_is_no_chat_completion(choices: Any) -> None:
    body = json.dumps({"choices": choices}).encode()
    with (
        LocalServer(lambda number, asked: Said(body=body)) as server,
        pytest.raises(BadInput, match="is no chat completion"),
    ):
        policy(server)


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-\u2026", "sk-\x01"])
def test_a_key_that_cannot_be_one_is_said_without_showing_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", key)
    with LocalServer() as server, pytest.raises(BadInput, match="holds a character that no key has") as found:
        policy(server, key_from="SERVER_KEY")
    assert "sk-" not in str(found.value) and not server.requests


TOO_LONG = [
    "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens",
    "the request exceeds the available context size, try increasing it",
    "The input (3000 tokens) is longer than the model's context length (2048 tokens).",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_a_conversation_too_long_for_the_server_ends_as_one_too_long_for_the_context(message: str) -> None:
    def behave(number: int, body: dict[str, Any]) -> Said:
        # The last reply before is an empty one that was cut: even that must leave nothing behind.
        said = Said("", finish="length") if len(body["messages"]) == 7 else Said("Thought: up.\nAction: sing")
        return refusal(400, message) if len(body["messages"]) > 7 else said

    with LocalServer(behave) as server:
        by_server = Player(policy(server), CHAT, 100_000).play([episode(str(n), n) for n in range(2)], "digest")
    for item in by_server:
        assert item.outcome is Outcome.FAILURE and len(item.steps) == 3
        with LocalServer(behave) as server:
            context = len(item.token_ids) + 1
            [by_context] = Player(policy(server), CHAT, context).play([episode(item.task, item.attempt)], "digest")
        assert by_context == item


def test_a_world_that_does_not_fit_the_server_at_all_is_named() -> None:
    with LocalServer(lambda number, body: refusal(400, TOO_LONG[0]) if number else Said()) as server:
        player = Player(policy(server), CHAT, 100_000)
        with pytest.raises(BadInput, match="first observation of world 'maze' do not fit"):
            player.play([episode("3")], "digest")


def test_another_refused_request_stops_the_run() -> None:
    sentence = "temperature must be below 1"
    with (
        LocalServer(lambda number, body: refusal(400, sentence) if number else Said()) as server,
        pytest.raises(ServerFailed, match=sentence),
    ):
        one_reply(server)
    assert len(server.requests) == 2, "asking again would not help"


class NotedLimit(RateLimit):
    """Notes when what was let through, on a clock that only waiting moves."""

    let_through: ClassVar[dict[float, list[float]]] = {}

    def __init__(self, per_minute: float) -> None:
        clock = Clock()
        super().__init__(per_minute, clock.monotonic, clock.sleep)
        self.let_through[per_minute] = self.times = []

    def take(self, amount: float = 1.0) -> Taken:
        taken = super().take(amount)
        self.times.append(taken.at)
        return taken


def test_requests_a_minute_are_limited_and_repeated_ones_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedse.servers.server.RateLimit", NotedLimit)
    with LocalServer(lambda number, body: refusal(500) if number == 2 else Said()) as server:
        answering = policy(server, requests_per_minute=2)
        for number in range(5):
            answering.extend(answering.open(CHAT.opening("Rules."), Sampling(number, 1.0)), CHAT.turn("Go on."))
        answered = 0
        while answered < 5:
            answered += len(answering.ready())
    times = sorted(NotedLimit.let_through[2])
    assert len(times) == len(server.requests) == 7
    assert all(later - earlier >= 60 for earlier, later in zip(times, times[2:], strict=False))


def test_after_a_failure_nothing_more_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr("fedse.servers.server.RateLimit", lambda limit: RateLimit(limit, sleep=lambda _: over.wait(60)))
    with LocalServer(lambda number, body: refusal(401) if number else Said()) as server:
        answering = policy(server, requests_per_minute=2)
        for number in range(8):
            answering.extend(answering.open(CHAT.opening("Rules."), Sampling(number, 1.0)), CHAT.turn("Go on."))
        with pytest.raises(ServerFailed, match="refused the key"):
            answering.ready()
        over.set()
        time.sleep(0.3)
    assert len(server.requests) == 2


def test_tokens_a_minute_are_limited_by_what_the_server_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedse.servers.server.RateLimit", NotedLimit)
    with LocalServer() as server:
        # 107 tokens a request by the server's count, so the third in a row has to wait for the first to be forgotten.
        answering = policy(server, tokens_per_minute=250, reply_tokens=30)
        slot = answering.open(CHAT.opening("Rules."), Sampling(5, 1.0))
        for _ in range(4):
            answering.extend(slot, CHAT.turn("Go on."))
            answering.ready()
    assert NotedLimit.let_through[250] == [0, 0, 60, 60, 120]


def test_a_served_model_takes_no_adapter() -> None:
    import numpy as np

    with LocalServer() as server:
        answering = policy(server)
    answering.load(Served().initial_adapter(0))
    with pytest.raises(SwapFailed, match="cannot load an adapter"):
        answering.load(Adapter({"a": np.zeros(3, dtype=np.float32)}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"key_from": KEY}, "must be the name of an environment variable"),
        ({"url": f"http://me:{KEY}@127.0.0.1:1/v1"}, "must be a plain address"),
        ({"url": f"http://127.0.0.1:1/v1?key={KEY}"}, "must be a plain address"),
        ({"url": f"me:{KEY}@127.0.0.1"}, "must be a plain address"),
        ({"url": "http://[::1/v1"}, "must be a plain address"),
        ({"url": "http://localhost:abc/v1"}, "must be a plain address"),
        ({"url": "http://local\thost/v1"}, "must be a plain address"),
        ({"url": "http://localhost/v1 "}, "must be a plain address"),
    ],
)
def test_a_key_in_the_wrong_place_is_refused_with_the_file_and_not_repeated(
    options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    policy_options = {"name": "api", "url": "http://127.0.0.1:1/v1", "model": "m", **options}
    content = {"name": "x", "model": "served", "policy": policy_options, "clients": {"a": {"worlds": ["maze"]}}}
    (tmp_path / "x.yaml").write_text(json.dumps(content))
    with pytest.raises(BadInput, match=sentence) as found:
        fedse.load_experiment(tmp_path / "x.yaml")
    assert KEY not in str(found.value)
    with pytest.raises(ValidationError) as error:
        ApiPolicy(Served(), **{key: value for key, value in policy_options.items() if key != "name"})
    assert KEY not in str(error.value)


def test_a_reply_longer_than_the_servers_context_is_found_at_once() -> None:
    with (
        LocalServer(lambda *_: refusal(400, TOO_LONG[0])) as server,
        pytest.raises(BadInput, match=r"policy\.reply_tokens: 50000 tokens are more"),
    ):
        ApiPolicy(Served(), url=server.url, model="m", reply_tokens=50_000, retries=0)


def test_a_key_that_is_not_there_is_missed_before_anything_is_asked() -> None:
    with pytest.raises(BadInput, match="the environment variable it names is not set"):
        ApiPolicy(Served(), url="http://127.0.0.1:1/v1", model="m", key_from="NOT_SET_ANYWHERE")


def experiment(server: LocalServer, **changes: Any) -> Experiment:
    content: dict[str, Any] = {
        "name": "served",
        "rounds": 2,
        "model": "served",
        "policy": {"name": "api", "url": server.url, "model": "m", "slots": 8, "retries": 0},
        "learner": "none",
        "start": "none",
        "clients": {"east": {"worlds": [{"name": "maze", "mode": "original", "turn_limit": 20}]}},
        "exploration": {"tasks": 5},
        "evaluation": {"tasks": 3, "tasks_per_round": 0, "test_tasks": 4},
    }
    return Experiment(**{**content, **changes})


@pytest.mark.slow
def test_experience_is_collected_and_nothing_is_trained(tmp_path: Path) -> None:
    with LocalServer(expert) as server:
        result = fedse.run(experiment(server), tmp_path)
    assert result.adapter.size == 0 and result.test["macro"] == 1.0
    for number in (1, 2):
        report = json.loads((result.folder / f"rounds/{number:04d}/report.json").read_text())
        entry = report["clients"]["east"]
        assert (entry["sent"], entry["counts"]["learned_from"], entry["counts"]["successes"]) == (False, 0, 5)
        assert report["diagnostics"] == {"contributed": []} and report["refused"] == {}
    held = read_file(result.folder / "clients/east/buffer.sqlite")
    assert {item.round for item in held} == {1, 2} and {item.outcome for item in held} == {Outcome.SUCCESS}
    assert CHAT.messages(held[0].token_ids)[3]["content"] == held[0].steps[0].reply
    with pytest.raises(BadInput, match="cannot be reached"):
        fedse.run(experiment(server), tmp_path / "never")
    assert not (tmp_path / "never").exists(), "nothing is written before the server has answered"


@pytest.mark.slow
def test_what_was_collected_begins_a_run_of_another_model(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    with LocalServer(expert) as server:
        collected = fedse.run(experiment(server, rounds=1), tmp_path)
    held = read_file(collected.folder / "clients/east/buffer.sqlite")
    export(held, tmp_path / "experience.json")
    client = {"learner": {"worlds": [{"name": "maze", "mode": "original", "turn_limit": 20}]}}
    learned = fedse.run(table_experiment(start=str(tmp_path / "experience.json"), clients=client, rounds=1), tmp_path)
    begun = [item for item in read_file(learned.folder / "clients/learner/buffer.sqlite") if item.round == 0]
    assert sorted(item.task for item in begun) == sorted(item.task for item in held) != []
    assert {step.reply for item in begun for step in item.steps} == {step.reply for item in held for step in item.steps}


@pytest.mark.slow
def test_a_server_that_dies_stops_the_run_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with LocalServer(expert) as whole:
        complete = fedse.run(experiment(whole), tmp_path / "whole")
    with LocalServer(expert) as server:
        # In the second round: after the validation and the exploration of the first.
        first_round = 1 + sum(
            len(json.loads(line)["steps"])
            for line in (complete.folder / "clients/east/episodes/0001.jsonl").read_text().splitlines()
        )
        server.behaviour = lambda number, body: refusal(500) if number > first_round + 3 else expert(number, body)
        with pytest.raises(ServerFailed, match="Every complete round is kept"):
            fedse.run(experiment(server), tmp_path / "broken")
        folder = tmp_path / "broken/served"
        assert sorted(json.loads((folder / "manifest.json").read_text())["rounds"]) == ["0", "1"]
        server.behaviour = expert
        resumed = fedse.run(experiment(server), tmp_path / "broken")
    for name in ("0001", "0002", "test-0002"):
        path = f"clients/east/episodes/{name}.jsonl"
        assert (resumed.folder / path).read_text() == (complete.folder / path).read_text()
    assert resumed.test == complete.test


@pytest.mark.slow
def test_a_run_goes_on_with_another_server_and_other_limits_but_not_with_another_model(tmp_path: Path) -> None:
    with LocalServer(expert) as first:
        fedse.run(experiment(first, rounds=1), tmp_path)
    with LocalServer(expert) as second:
        changed = {
            "url": second.url,
            "slots": 3,
            "timeout": 7.0,
            "retries": 1,
            "requests_per_minute": 9000,
            "tokens_per_minute": 9_000_000,
        }
        told = {"name": "api", "model": "m", **changed}
        limits = {"max_error_share": 0.5}
        moved = experiment(second, policy=told, engine={"name": "local", "processes": 1}, limits=limits)
        resumed = fedse.run(moved, tmp_path)
        for name, value in {"model": "another", "reply_tokens": 7}.items():
            with pytest.raises(RunConflict, match=rf"different: policy\.{name}\)"):
                fedse.run(experiment(second, policy={**told, name: value}), tmp_path)
    assert stored_experiment(RunFolder.existing(resumed.folder)).policy.options["url"] == second.url
    assert sorted(json.loads((resumed.folder / "manifest.json").read_text())["rounds"]) == ["0", "1", "2"]


def with_key(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return command(*arguments, folder=folder, environment={**os.environ, "SERVER_KEY": KEY})


@pytest.mark.slow
def test_the_key_reaches_the_server_and_nothing_else(tmp_path: Path) -> None:
    def behave(number: int, body: dict[str, Any]) -> Said:
        # Once in the run's course the server repeats the key in an error, as some do.
        return refusal(503, f"busy, {KEY}") if number == 4 else Said(expert(number, body).text, usage=None)

    with LocalServer(behave) as server:
        told = {"url": server.url, "model": "m", "key_from": "SERVER_KEY", "slots": 4, "retries": 1}
        file = tmp_path / "e.yaml"
        file.write_text(experiment(server, rounds=1, policy={"name": "api", **told}).to_yaml())
        run = with_key("run", file, folder=tmp_path)
        assert run.returncode == 0, run.stderr
        assert {headers["authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
        shown = with_key("show", "runs/served", folder=tmp_path)
        exported = with_key(
            "export", "runs/served", "out.jsonl", "--what", "experience", "--client", "east", folder=tmp_path
        )
        server.behaviour = lambda number, body: refusal(500, f"broken for {KEY}")
        broken = with_key("eval", "runs/served", folder=tmp_path)
        server.behaviour = lambda number, body: refusal(401, f"Incorrect API key provided: {KEY}")
        locked = with_key("eval", "runs/served", folder=tmp_path)
    refused = with_key("export", "runs/served", "out", folder=tmp_path)
    assert "NO UPDATE: the learner abstained" in run.stdout
    assert "NOT COUNTED: " in run.stdout and "replies whose tokens the server did not tell" in run.stdout
    assert shown.returncode == exported.returncode == 0
    assert "Action:" in shown.stdout
    assert '"reply"' in (tmp_path / "out.jsonl").read_text()
    assert (broken.returncode, locked.returncode, refused.returncode) == (2, 2, 2)
    assert "status 500" in broken.stderr and "***" in broken.stderr
    assert "check the environment variable SERVER_KEY" in locked.stderr
    assert refused.stderr.count("\n") == 1 and "has no adapter" in refused.stderr
    assert not (tmp_path / "out").exists()
    for done in (run, shown, exported, broken, locked, refused):
        assert KEY not in done.stdout + done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "buffer.sqlite" for path in files)
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


@pytest.mark.slow
def test_no_rounds_are_a_pure_evaluation(tmp_path: Path) -> None:
    with LocalServer(expert) as server:
        result = fedse.run(experiment(server, rounds=0), tmp_path)
    assert (result.validation["macro"], result.test["macro"]) == (1.0, 1.0)
    assert {path.name for path in (result.folder / "evaluations").iterdir()} == {
        "validation-0000.json",
        "test-0000.json",
    }
    assert len((result.folder / "clients/east/episodes/test-0000.jsonl").read_text().splitlines()) == 4
    shown = with_key("show", "served", "--split", "test", folder=tmp_path)
    assert shown.returncode == 0 and "Action:" in shown.stdout, shown.stderr


def test_an_interrupt_that_does_not_wake_the_waiting_thread_is_seen_soon() -> None:
    """The system may give the signal to any thread, or give it just before the main thread falls asleep."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press() -> None:
        time.sleep(0.5)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    try:
        with LocalServer(lambda number, body: Said(pause=15) if number else Said()) as server:
            answering = policy(server, timeout=30.0)
            answering.extend(answering.open(CHAT.opening("Rules."), Sampling(0, 1.0)), CHAT.turn("Go on."))
            threading.Thread(target=press, daemon=True).start()
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                answering.ready()
            assert time.monotonic() - began < 10
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_an_interrupted_run_does_not_wait_for_its_server(tmp_path: Path) -> None:
    with LocalServer(lambda number, body: Said(pause=60) if number else Said()) as server:
        (tmp_path / "e.yaml").write_text(experiment(server, rounds=0).to_yaml())
        line = [sys.executable, "-m", "fedse", "run", "e.yaml"]
        run = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 60
        while len(server.requests) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=45)  # The server would take 60 seconds for each reply.
    assert run.returncode == 130
    assert "the same command resumes the run" in output


def test_the_examples_of_the_page_on_serving_are_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/serving.md").read_text()
    examples = dict(re.findall(r'^```yaml title="([^"]+)"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL))
    assert list(examples) == ["measure.yaml", "collect.yaml", "learn.yaml"]
    for name, content in examples.items():
        (tmp_path / name).write_text(content)
        fedse.load_experiment(tmp_path / name)
