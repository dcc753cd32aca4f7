"""A real nginx with the file of a hub, in front of a server that tells what has reached it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from deployment import free_port, wait_for

pytest.importorskip("flwr")

from fedse.apps.fence import fence, find_nginx, warn_if_out_of_reach
from fedse.apps.hub_folder import HubFolder
from fedse.apps.hub_options import HubOptions
from fedse.apps.nginx_file import ROUTES
from fedse.errors import BadInput

needs_nginx = pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed")


class Behind(ThreadingHTTPServer):
    """Stands for Flower's server."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.lines = 0
        super().__init__(("127.0.0.1", 0), Answering)

    def get_request(self) -> Any:
        self.lines += 1
        return super().get_request()


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        assert isinstance(self.server, Behind)
        self.server.heard.append(f"{self.command} {self.path}")
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 - names that the library looks for

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def behind() -> Iterator[Behind]:
    server = Behind()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def hub_before(behind: Behind, folder: Path, **settings: Any) -> HubFolder:
    given = {"address": f"127.0.0.1:{free_port()}", "port": behind.server_address[1], "insecure": True}
    return HubFolder.create(folder / "hub", HubOptions.model_validate({**given, **settings}), ["east"])


def status(port: int, raw: str) -> int:
    """Of a request whose line is sent as it stands; libraries would tidy it up."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(f"{raw} HTTP/1.1\r\nHost: hub\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode("latin-1"))
        return int(line.recv(100).split()[1])


@needs_nginx
def test_what_passes_is_spelled_exactly_as_a_route_of_the_sites(behind: Behind, tmp_path: Path) -> None:
    hub = hub_before(behind, tmp_path)
    port = hub.options.listens_at[1]
    with fence(hub, pytest.fail):
        assert [status(port, f"POST /v1/fleet/{route}") for route in ROUTES] == [200] * len(ROUTES)
        assert behind.heard == [f"POST /v1/fleet/{route}" for route in ROUTES]
        behind.heard.clear()
        spellings = [
            "/v1/control/list-runs",
            "/v1/control/list-runs/../../fleet/get-run",
            "/v1/control/list-runs/%2e%2e/%2e%2e/fleet/get-run",
            "/v1/control/list-runs/..%2f../fleet/get-run",
            "/v1/fleet/../control/list-runs",
            "/v1/fleet/%2e%2e/control/list-runs",
            "/v1/fleet/get-run/../../control/list-runs",
            "/v1/fleet/./get-run",
            "//v1/fleet/get-run",
            "/v1//fleet/get-run",
            "/v1/fleet//get-run",
            "/v1/fleet/get-run/",
            "/v1/fleet/get%2drun",
            "/v1/fleet/get-run%00",
            "/v1/fleet/get-run?a=/v1/control/list-runs",
            "/v1/fleet/get-run#x",
            "/v1/fleet/get-run;x",
            "/v1/fleet/GET-RUN",
            "/V1/fleet/get-run",
            "/v1/fleet/list-runs",
            "/v1/fleet/",
            "/x?/v1/fleet/get-run",
            "/docs",
            "*",
        ]
        assert {status(port, f"POST {spelling}") for spelling in spellings} <= {400, 403}
        for method in ("GET", "PUT", "DELETE", "CONNECT", "OPTIONS"):
            assert status(port, f"{method} /v1/fleet/get-run") in (400, 403, 405), method
        assert behind.heard == []


@needs_nginx
def test_the_fence_listens_at_the_given_address_only_keeps_lines_open_and_ends_with_its_hub(
    behind: Behind, tmp_path: Path
) -> None:
    hub = hub_before(behind, tmp_path)
    port = hub.options.listens_at[1]
    with fence(hub, pytest.fail):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=2)
        site = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(20):
            site.request("POST", "/v1/fleet/pull-messages", b"x")
            site.getresponse().read()
        site.close()
        assert len(behind.heard) == 20 and behind.lines == 1
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)
    assert not (hub.path / "nginx.pid").exists()


@needs_nginx
@pytest.mark.slow
def test_a_fence_that_is_killed_or_left_over_is_replaced(behind: Behind, tmp_path: Path) -> None:
    hub = hub_before(behind, tmp_path)
    port = hub.options.listens_at[1]
    pid_file = hub.path / "nginx.pid"
    with fence(hub, pytest.fail):
        left = int(wait_for(lambda: pid_file.exists() and pid_file.read_text().strip(), 10, "nginx"))
        time.sleep(5)  # What ends sooner is not started again.
        os.kill(left, signal.SIGTERM)
        wait_for(lambda: pid_file.exists() and pid_file.read_text().strip() not in ("", str(left)), 10, "a new nginx")
        wait_for(lambda: _answers(port), 10, "it to answer")


def _answers(port: int) -> bool:
    try:
        return status(port, "POST /v1/fleet/get-run") == 200
    except OSError:
        return False


def test_an_address_that_the_machine_has_not_and_a_missing_nginx_are_explained(
    behind: Behind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedse.apps.fence.find_nginx", lambda: "/usr/sbin/nginx")
    away = hub_before(behind, tmp_path / "away", address="192.0.2.1:8443")
    with pytest.raises(BadInput, match=r"does not have the address 192\.0\.2\.1: write `listen:`"), fence(away, print):
        pass
    monkeypatch.setattr("fedse.apps.fence.find_nginx", lambda: None)
    with (
        pytest.raises(BadInput, match=r"nginx is not installed.*else must listen at 192\.0\.2\.1:8443"),
        fence(away, print),
    ):
        pass
    here = hub_before(behind, tmp_path / "here", address="127.0.0.1:8443")
    with pytest.raises(BadInput, match="write `fence: false` and `port: 8443` into"), fence(here, print):
        pass
    with fence(hub_before(behind, tmp_path / "own", fence=False), print):
        pass


def test_a_hub_without_a_fence_warns_where_its_sites_would_find_nobody(behind: Behind, tmp_path: Path) -> None:
    said: list[str] = []
    nobody = free_port()
    warn_if_out_of_reach(hub_before(behind, tmp_path / "a", fence=False, address=f"127.0.0.1:{nobody}"), said.append)
    (told,) = said
    assert f"nothing answers at 127.0.0.1:{nobody}" in told and f"write `port: {nobody}` into hub.yaml" in told
    assert f"Flower's server listens at 127.0.0.1:{behind.server_address[1]}" in told
    reached = f"127.0.0.1:{behind.server_address[1]}"
    warn_if_out_of_reach(hub_before(behind, tmp_path / "b", fence=False, address=reached), pytest.fail)
    warn_if_out_of_reach(hub_before(behind, tmp_path / "c"), pytest.fail)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"address": "127.0.0.1:8443"}, "127.0.0.1"),
        ({"address": "localhost:8443"}, "127.0.0.1"),
        ({"address": "hub.example.org:8443"}, "0.0.0.0"),
        ({"address": "hub.example.org:8443", "listen": "10.0.0.7"}, "10.0.0.7"),
    ],
)
def test_where_a_fence_listens(settings: dict[str, str], place: str, tmp_path: Path) -> None:
    hub = HubFolder.create(tmp_path / "hub", HubOptions.model_validate(settings), ["east"])
    assert f"listen {place}:8443 ssl;" in (hub.path / "nginx.conf").read_text()
