"""A served agent, asked by the library `openai` and by hand: what it answers, and what it refuses in which words."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from fedse.conversation import ACCEPTANCE
from fedse.models.chat import ByteChat
from fedse.policies.scripted import ScriptedPolicy
from fedse.protocols import Reply
from fedse.serving.server import AgentServer
from fedse.serving.worker import Worker
from fedse.types import Sampling

openai = pytest.importorskip("openai")

CHAT = ByteChat()
HELLO = [{"role": "user", "content": "hello"}]


class Echo(ScriptedPolicy):
    """Says the last turn, the first draw of its random numbers and the temperature. Notes what it was asked."""

    def __init__(self, slots: int = 8) -> None:
        super().__init__(CHAT, slots=slots)
        self.conversations: dict[int, list[int]] = {}
        self.seen: list[list[int]] = []
        self.together: list[int] = []
        self.broken = False
        self.hold = threading.Event()
        self.hold.set()

    def open(self, opening: Any, sampling: Sampling) -> int:
        slot = super().open(opening, sampling)
        self.conversations[slot] = list(opening)
        return slot

    def extend(self, slot: int, ids: Any) -> None:
        super().extend(slot, ids)
        self.conversations[slot] += ids

    def ready(self) -> list[Reply]:
        self.hold.wait(10)
        if self.broken:
            raise MemoryError("too full")
        self.together.append(len(self._conversations))
        self.seen += [self.conversations[slot] for slot in self._conversations]
        return super().ready()

    def answer(self, turn: str, draw: float, temperature: float) -> str:
        return f"{turn}|{draw:.6f}|{temperature:g}"


@contextmanager
def serving(policy: ScriptedPolicy, context: int = 500, key: str = "") -> Iterator[AgentServer]:
    worker = Worker(policy, CHAT, context)
    server = AgentServer(worker, "mine@3", key=key)
    server.listen()
    over = threading.Event()
    thread = threading.Thread(target=worker.work, args=(over.is_set,))
    thread.start()
    try:
        yield server
    finally:
        over.set()
        server.close()
        thread.join(10)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(echo: Echo) -> Iterator[AgentServer]:
    with serving(echo) as made:
        yield made


@pytest.fixture
def ask(server: AgentServer) -> Callable[..., Any]:
    client = openai.OpenAI(base_url=server.url, api_key="any", max_retries=0)

    def create(messages: Any = HELLO, **options: Any) -> Any:
        return client.chat.completions.create(**{"model": "mine@3", "messages": messages, **options})

    return create


def test_a_model_is_listed_and_answers_with_counts(server: AgentServer, ask: Callable[..., Any]) -> None:
    client = openai.OpenAI(base_url=server.url, api_key="any", max_retries=0)
    assert [model.id for model in client.models.list()] == ["mine@3"]
    assert client.models.retrieve("mine@3").id == "mine@3"
    done = ask(temperature=0)
    (choice,) = done.choices
    assert choice.message.content.startswith("hello|") and choice.message.content.endswith("|0")
    assert (done.model, choice.finish_reason, choice.message.role) == ("mine@3", "stop", "assistant")
    # Beside its bytes a message has two delimiters, and one more asks for the reply, which has its end.
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (8, len(choice.message.content) + 1)


def test_a_seed_decides_what_is_drawn_and_replies_of_one_request_differ(ask: Callable[..., Any]) -> None:
    def said(**options: Any) -> list[str]:
        return [choice.message.content for choice in ask(**options).choices]

    assert said(seed=5, n=3) == said(seed=5, n=3) != said(seed=6, n=3)
    assert len(set(said(seed=5, n=3))) == 3 and said(seed=5) == said(seed=5, n=3)[:1]
    assert said() != said(), "without a seed nothing repeats"


def test_a_reply_is_cut_at_its_limit_and_before_a_stop(ask: Callable[..., Any]) -> None:
    cut = ask(max_tokens=3)
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("hel", "length")
    assert cut.usage.completion_tokens == 3
    assert ask(max_completion_tokens=3).choices[0].message.content == "hel"
    for stop in ("lo", ["|", "lo"]):
        stopped = ask(stop=stop)
        assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("hel", "stop")
        assert stopped.usage.completion_tokens == 5, "what was drawn up to the end of the stop"
    assert ask(stop="nowhere", max_tokens=4000).choices[0].finish_reason == "stop"


def test_a_stream_says_the_same(ask: Callable[..., Any]) -> None:
    whole = ask(seed=1, n=2)
    said, ends, usage = {0: "", 1: ""}, {}, None
    for chunk in ask(seed=1, n=2, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason
        usage = chunk.usage or usage
    assert list(said.values()) == [choice.message.content for choice in whole.choices]
    assert set(ends.values()) == {"stop"} and usage == whole.usage


def test_conversations_are_rendered_as_the_agent_was_trained(echo: Echo, ask: Callable[..., Any]) -> None:
    turns = [{"role": "user", "content": "seen"}, {"role": "assistant", "content": "did"}]
    last = {"role": "user", "content": [{"type": "text", "text": "se"}, {"type": "text", "text": "en"}]}
    accepted = [{"role": "user", "content": "rules"}, {"role": "assistant", "content": ACCEPTANCE}]
    told = [*CHAT.opening("rules"), *CHAT.turn("seen"), *CHAT.reply("did"), *CHAT.turn("seen")]
    for beginning in (accepted, [{"role": "system", "content": "rules"}], [{"role": "developer", "content": "rules"}]):
        ask([*beginning, *turns, last])
        assert echo.seen[-1] == told
    ask([*turns, last])
    assert CHAT.messages(echo.seen[-1]) == [
        {"role": "user", "content": "seen"},
        {"role": "assistant", "content": "did"},
        {"role": "user", "content": "seen"},
    ]


def test_a_reply_is_read_again_with_the_tokens_that_were_sampled(echo: Echo, ask: Callable[..., Any]) -> None:
    # No text: reading it back as text would make other tokens.
    odd = (200, 201, CHAT._END)
    echo.chat = ByteChat()
    echo.chat.reply = lambda text: list(odd)  # type: ignore[method-assign]
    said = ask().choices[0].message.content
    assert said == "\ufffd\ufffd"
    ask([*HELLO, {"role": "assistant", "content": said}, *HELLO])
    assert echo.seen[-1] == [*CHAT.opening("hello")[: -len(CHAT.reply(ACCEPTANCE))], *odd, *CHAT.turn("hello")]


def test_requests_that_wait_are_answered_together(echo: Echo, ask: Callable[..., Any]) -> None:
    echo.hold.clear()
    with ThreadPoolExecutor(20) as threads:
        asked = [threads.submit(ask, [{"role": "user", "content": str(number)}]) for number in range(20)]
        threading.Event().wait(0.5)
        echo.hold.set()
        said = [done.result().choices[0].message.content.partition("|")[0] for done in asked]
    assert said == [str(number) for number in range(20)], "each gets its own answer"
    assert max(echo.together) == echo.slots and sum(echo.together) == 20


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ({"model": "other"}, 404, "there is no model 'other': this server has 'mine@3'"),
        ({"messages": []}, 400, "messages: "),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "the user begins"),
        ({"messages": HELLO * 2}, 400, "must take turns"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "x"}]}, 400, "the last one must be the user's"),
        ({"messages": [*HELLO, {"role": "system", "content": "x"}]}, 400, "at the beginning only"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, 400, "messages.0.role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            400,
            "content",
        ),
        ({"messages": [{"role": "user", "content": "x" * 600}]}, 400, "maximum context length is 500 tokens"),
        ({"temperature": 3}, 400, "temperature: "),
        ({"max_tokens": 0}, 400, "max_tokens: "),
        ({"max_tokens": 3, "max_completion_tokens": 4}, 400, "are the same limit"),
        ({"n": 9}, 400, "n: at most 8 replies"),
        ({"top_p": 0.9}, 400, "'top_p' is not supported here"),
        ({"logprobs": True}, 400, "'logprobs' is not supported here"),
        ({"extra_body": {"best_of": 2}}, 400, "'best_of' is not known here"),
        ({"stop": ["a", "b", "c", "d", "e"]}, 400, "stop"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    ask: Callable[..., Any], options: dict[str, Any], status: int, words: str
) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        ask(**options)
    assert refused.value.status_code == status and words in refused.value.body["message"]


def test_what_makes_no_difference_is_taken(ask: Callable[..., Any]) -> None:
    ask(top_p=1.0, presence_penalty=0, frequency_penalty=0, user="me", logprobs=False, tools=[], seed=None, stop=None)


def test_the_length_that_the_api_policy_takes_for_full_is_said_in_its_words(ask: Callable[..., Any]) -> None:
    from fedse.servers.server import _TOO_LONG

    with pytest.raises(openai.BadRequestError) as refused:
        ask([{"role": "user", "content": "x" * 600}])
    assert _TOO_LONG.search(refused.value.body["message"]) and refused.value.code == "context_length_exceeded"


def test_a_policy_that_fails_answers_so_and_goes_on(echo: Echo, ask: Callable[..., Any]) -> None:
    echo.broken = True
    with pytest.raises(openai.InternalServerError, match="MemoryError: too full"):
        ask()
    echo.broken = False
    assert ask().choices[0].message.content.startswith("hello")


def test_a_key_is_wanted_where_one_was_set(echo: Echo) -> None:
    with serving(echo, key="right") as server:
        for key, wanted in (("wrong", openai.AuthenticationError), ("right", None)):
            client = openai.OpenAI(base_url=server.url, api_key=key, max_retries=0)
            if wanted is None:
                assert client.models.list().data
            else:
                with pytest.raises(wanted):
                    client.models.list()


def raw(server: AgentServer, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", int(server.url.split(":")[2].split("/")[0]), timeout=10)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    said = answer.status, json.loads(answer.read())["error"]["message"]
    connection.close()
    return said


def test_requests_by_hand_are_refused_in_the_same_form(server: AgentServer) -> None:
    chat = "/v1/chat/completions"
    assert raw(server, "POST", chat, b"{")[0] == 400
    assert raw(server, "POST", chat, b"[1]") == (400, "the body must be a JSON object.")
    assert raw(server, "POST", chat, b"\xff")[0] == 400
    assert raw(server, "GET", chat)[0] == raw(server, "POST", "/v1/models")[0] == 405
    assert raw(server, "GET", "/etc/passwd")[0] == raw(server, "POST", "/v1/completions")[0] == 404
    assert raw(server, "GET", "/v1/models", Host="evil.example:80")[0] == 403
    for length in (str(1 << 30), "9" * 5000):
        assert raw(server, "POST", chat, Content_Length=length)[0] == 413
    for half in (b'{"model": "\\ud800"}', b'{"model": "mine@3", "messages": [{"role": "user", "content": "\\ud800"}]}'):
        assert "surrogates not allowed" in raw(server, "POST", chat, half)[1]
    assert raw(server, "POST", chat, Transfer_Encoding="chunked")[0] == 411
