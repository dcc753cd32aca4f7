"""The api policy against `transformers serve`: a server that other people wrote, with a real model behind it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedse.errors import BadInput
from fedse.models.chat import ByteChat
from fedse.models.served import Served
from fedse.policies.api import ApiPolicy
from fedse.rollouts.player import Player
from fedse.types import Episode, Purpose, Sampling, Task
from fedse.worlds.maze import Maze

for library in ("openai", "torch", "peft", "fastapi", "uvicorn"):
    pytest.importorskip(library)

pytestmark = pytest.mark.slow
CHAT = ByteChat()
REPLY_TOKENS = 12
TURNS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama as a folder, whose tokens are bytes: what it reads and writes can be counted by hand."""
    from transformers import GenerationConfig

    from fedse.models.tiny import Tiny

    made = tmp_path_factory.mktemp("model")
    model = Tiny(width=32, layers=2, context=4096, device="cpu", threads=1)
    model.save_merged(model.initial_adapter(0), made)
    GenerationConfig(do_sample=True, eos_token_id=model.tokenizer.eos_token_id).save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    # Offline, so that starting it cannot reach out for anything.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [
        Path(sys.executable).parent / "transformers",
        "serve",
        folder,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with log.open("w") as output:
        server = subprocess.Popen(
            [*map(str, command), "--device", "cpu"], stdout=output, stderr=output, env=environment
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")


def make_maze() -> Maze:
    return Maze(rules="brief", observation_length="brief", turn_limit=TURNS)


def test_mazes_are_played_and_counted_to_the_token(url: str, folder: Path) -> None:
    policy = ApiPolicy(Served(), url=url, model=str(folder), slots=2, reply_tokens=REPLY_TOKENS, retries=1)
    tasks = [task.id for task in make_maze().tasks("train")[:3]]
    episodes = [
        Episode("c", "maze", make_maze, Task(task), Purpose.EXPLORE, 1, attempt, Sampling(attempt, 1.0))
        for attempt, task in enumerate(tasks)
    ]
    played = Player(policy, CHAT, 100_000).play(episodes, "digest")
    assert [item.task for item in played] == tasks
    read = 0
    for item in played:
        # The last reply of an episode may have been cut, and then has no end of its own.
        whole = item.token_ids if item.token_ids[-1] in CHAT.end_ids else (*item.token_ids, *CHAT.reply(""))
        messages = CHAT.messages(whole)
        assert [message["content"] for message in messages[3::2]] == [step.reply for step in item.steps]
        assert [message["content"] for message in messages[2::2]] == [step.observation for step in item.steps]
        assert len(item.steps) == TURNS and any(step.reply for step in item.steps)
        for turn in range(TURNS):
            # A byte is a token, every message has two delimiters, and one more asks for the reply.
            asked = messages[: 3 + 2 * turn]
            read += sum(len(message["content"].encode()) + 2 for message in asked) + 1
    assert policy.usage.prefilled == policy.usage.prefilled_without_cache == read
    assert TURNS * len(played) <= policy.usage.decoded <= TURNS * len(played) * REPLY_TOKENS
    assert policy.usage.uncounted == 0


def test_greedy_replies_repeat(url: str, folder: Path) -> None:
    replies = []
    for _ in range(2):
        policy = ApiPolicy(Served(), url=url, model=str(folder), slots=2, reply_tokens=REPLY_TOKENS, retries=1)
        slot = policy.open(CHAT.opening("Rules."), Sampling(1, 0.0))
        policy.extend(slot, CHAT.turn("Go on."))
        replies.append(policy.ready())
    assert replies[0] == replies[1]


def test_a_model_the_server_does_not_have_is_named_by_its_own_words(url: str) -> None:
    with pytest.raises(BadInput, match=rf"the server at {url} answered with status 400 .*requested 'another'"):
        ApiPolicy(Served(), url=url, model="another", retries=0)
