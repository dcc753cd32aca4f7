"""The page's server: this machine only, behind its secret, nothing but what it is there for; events go on after a break."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedse.errors import BadInput
from fedse.events import RoundStarted
from fedse.page.answers import Answers
from fedse.page.files import FILES, MODULES
from fedse.page.server import HOST, PageServer
from fedse.page.shown import Shown
from fedse.runs.event_log import EventLog
from fedse.runs.reading import RunView

HTM = "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7"


@contextmanager
def serving(shown: Shown) -> Iterator[PageServer]:
    with PageServer(Answers({"small": shown}), pause=0.02) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def server(shown: Shown) -> Iterator[PageServer]:
    with serving(shown) as started:
        yield started


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content


def test_it_answers_whoever_knows_the_secret(server: PageServer) -> None:
    status, headers, content = ask(server, f"/{server.token}/")
    assert status == 200 and b"static/app.js" in content
    assert json.loads(ask(server, f"/{server.token}/api/runs")[2]) == {"runs": [{"name": "small", "kind": "run"}]}
    overview = json.loads(ask(server, f"/{server.token}/api/small/overview")[2])
    assert overview["done"] == 2
    for name, (kind, given) in FILES.items():
        status, headers, content = ask(server, f"/{server.token}/static/{name}")
        assert (status, headers["content-type"], content) == (200, kind, given)
    assert len(server.token) >= 20 and server.url == f"http://127.0.0.1:{server.server_port}/{server.token}/"


def test_nobody_else_is_told_anything(server: PageServer) -> None:
    for path in (
        "/",
        "/wrong/",
        f"/{server.token[:-1]}/",
        "//",
        "/api/runs",
        "/static/app.js",
        f"/%2e/{server.token}/",
    ):
        status, _, content = ask(server, path)
        assert status == 403 and server.token.encode() not in content, path
    for name in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", ""):
        assert ask(server, f"/{server.token}/", Host=name)[0] == 403, name
    assert ask(server, f"/{server.token}/", Host=f"localhost:{server.server_port}")[0] == 200


def test_it_listens_on_this_machine_only(server: PageServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(BadInput, match="--port"), PageServer(server.answers, server.server_port):
        pass


def test_every_answer_forbids_what_the_page_does_not_need(server: PageServer) -> None:
    for path in (f"/{server.token}/", f"/{server.token}/api/small/left", f"/{server.token}/nothing", "/"):
        headers = ask(server, path)[1]
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert "unsafe" not in headers["content-security-policy"] and "http" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store" and "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "static/../server.py",
        "static/..%2fserver.py",
        "static/%2e%2e/%2e%2e/server.py",
        "static//etc/passwd",
        "static/%2fetc%2fpasswd",
        "static/LICENSE-htm",
        "api/..%2f..%2f/overview",
        "api/small%2f..%2fsmall/overview",
        "api/small/trajectory?id=../../../etc/passwd/0",
        "api/small/trajectory?id=east/..%2f..%2f..%2fmanifest/0",
        "api/other/events",
        "manifest.json",
    ],
)
def test_nothing_else_can_be_had(server: PageServer, path: str) -> None:
    status, _, content = ask(server, f"/{server.token}/{path}")
    assert status == 404 and len(content) < 200


def test_why_something_cannot_be_shown_is_an_answer(server: PageServer) -> None:
    status, _, content = ask(server, f"/{server.token}/api/small/compare")
    assert status == 200 and json.loads(content) == {"refused": "Choose two runs or more."}


def test_a_fault_of_the_page_is_told_on_it(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> dict[str, object]:
        return {"a": 1 / 0}

    monkeypatch.setattr(server.answers, "_left", broken)
    status, _, content = ask(server, f"/{server.token}/api/small/left")
    assert status == 500 and "ZeroDivisionError, broken in test_page_server.py" in json.loads(content)["refused"]


def test_odd_requests_are_refused_in_silence(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    for line in (b"GET * HTTP/1.1", b"GET //[x HTTP/1.1", b"GET /%ff%00/\xff HTTP/1.1", b"\x00\x1b[2J", b"GET"):
        with socket.create_connection((HOST, server.server_port), timeout=10) as connection:
            connection.sendall(line + f"\r\nHost: {HOST}:{server.server_port}\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(100_000)
        assert b" 403 " in answer[:30] or b" 400 " in answer[:600] or answer == b"", answer
        assert server.token.encode() not in answer
    assert capfd.readouterr() == ("", "")


def test_it_only_reads(server: PageServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, f"/{server.token}/", method)[0] == 501


def listen(server: PageServer, after: int, last: int | None = None) -> socket.SocketIO:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=10)
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    connection.request("GET", f"/{server.token}/api/small/events?after={after}", headers=headers)
    answer = connection.getresponse()
    assert answer.getheader("Content-Type", "").startswith("text/event-stream")
    return answer  # type: ignore[return-value]


def heard(answer: socket.SocketIO, count: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    place = 0
    while len(found) < count:
        line = answer.readline().decode().strip()
        if line.startswith("id: "):
            place = int(line.removeprefix("id: "))
        elif line.startswith("data: "):
            found.append((place, json.loads(line.removeprefix("data: "))["event"]))
    return found


def test_events_come_with_their_places_and_go_on_after_a_break(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    shutil.copytree(finished, folder)
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    written = [(sum(map(len, lines[: n + 1])), json.loads(line)["event"]) for n, line in enumerate(lines)]
    with serving(Shown.of(RunView.existing(folder))) as server:
        first = listen(server, 0)
        assert heard(first, 4) == written[:4]
        first.close()
        again = listen(server, 0, last=written[3][0])
        assert heard(again, len(written) - 4) == written[4:], (
            "what was heard is not told again, and nothing is left out"
        )
        EventLog(folder / "events.jsonl", time.time).record(RoundStarted(round=3))
        assert heard(again, 1)[0][1] == "round_started"
        again.close()


def test_what_is_shipped_is_small() -> None:
    from importlib.resources import files

    static = Path(str(files("fedse.page") / "static"))
    assert sum(path.stat().st_size for path in static.iterdir()) < 300_000
    assert hashlib.sha256(FILES["htm.js"][1]).hexdigest() == HTM, "htm 3.1.1, as it was published"
    served = {"index.html", *FILES}
    assert {path.name for path in static.iterdir()} == served | {"LICENSE-htm", "LICENSE-preact"}
    assert {name for name in FILES if name.endswith(".js")} == set(MODULES)
