"""One hub and three sites as real processes, with TLS and keys, through everything that can happen to them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deployment import Deployment, Recorder, free_port, wait_for
from held_worlds import SECRET, options

import fedse
from fedse.apps.fence import find_nginx
from fedse.engines.flower.settings import environment as environment_of
from fedse.experience.buffer import read_file
from fedse.experiments.assembling import RunResult
from fedse.experiments.options import Experiment
from fedse.storage.strict_yaml import to_yaml
from short_maze import SHORT_MAZE

pytest.importorskip("flwr")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunResult:
    """The same experiment in one process."""
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("FEDSE_TEST_FLAGS", str(tmp_path / "none"))
    monkeypatch.setenv("FEDSE_TEST_SITE", "")
    return fedse.run(Experiment(**options()), tmp_path / "local")


def ledger(data: Path) -> list[dict[str, Any]]:
    path = data / "held/clients" / data.parent.name / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.torture
def test_sites_and_hub_are_killed_and_the_adapter_is_that_of_the_local_engine(local: RunResult, tmp_path: Path) -> None:
    sites = ["east", "north", "west"]
    recorder = Recorder()
    with Deployment(tmp_path / "d", to_yaml(options()), sites, recorder.port) as d:
        d.hold("exploring-west")
        for site in sites:
            d.start_site(site)
        # Sites are first: they say what they wait for and go on trying.
        d.start_hub()
        wait_for(lambda: "the hub is open" in d.log("hub"), 180, "the hub")
        wait_for(lambda: "cannot be reached" in d.log("east"), 180, "a site that finds no hub")
        recorder.open(d.hub / "certificates", d.port)

        d.wait_held("exploring-west")
        d.kill("west")
        d.release("exploring-west")
        d.hold("learning-west")
        (d.flags / "exploring-west.held").unlink()
        d.start_site("west")

        d.wait_held("learning-west")
        d.kill("west")
        d.release("learning-west")
        d.start_site("west")
        wait_for(lambda: len(d.reports("held")) >= 1, 180, "round 1")

        # As the OOM killer would. The hub goes on by itself.
        os.kill(json.loads((d.hub / "flower/outcome.json").read_text())["pid"], signal.SIGKILL)
        wait_for(lambda: "has ended without a result. Resuming" in d.log("hub"), 30, "the hub to notice")

        data = d.kit("north") / "data"
        wait_for(lambda: any(line["task"] == "train-0002" for line in ledger(data)), 180, "north's second update")
        d.kill("north")  # The ledger is written when the update is ready to be sent.
        d.start_site("north")
        wait_for(lambda: len(d.reports("held")) >= 2, 180, "round 2")

        d.kill_alone("hub")
        time.sleep(1)
        done = len(d.reports("held"))
        hub = d.start_hub()
        # It said so once before, when the process of the run was killed.
        wait_for(lambda: d.log("hub").count("Resuming after round") >= 2, 180, "the run to go on")
        (server,) = d.children("hub", "superlink")
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: "Flower's server has ended (code -9). Resuming" in d.log("hub"), 30, "the hub to notice")
        assert hub.wait(timeout=300) == 0
        assert d.adapter() == local.adapter.digest()
        assert "Resuming after round" in d.log("hub") and 2 <= done < 4
        assert [report["round"] for report in d.reports("held")] == [1, 2, 3, 4]
        assert all(report["absent"] == {} for report in d.reports("held"))
        final = json.loads((d.runs / "held/evaluations/test-0004.json").read_text())
        assert final["worlds"] == json.loads((local.folder / "evaluations/test-0004.json").read_text())["worlds"]

        for site in sites:
            # Whatever was done twice is remembered once.
            there = read_file(d.kit(site) / f"data/held/clients/{site}/buffer.sqlite")
            assert there == read_file(local.folder / f"clients/{site}/buffer.sqlite")
        journal = (d.kit("west") / "data/held/clients/west/episodes/0001.jsonl").read_text()
        assert SECRET in journal
        check_wire(recorder, d)


def check_wire(recorder: Recorder, d: Deployment) -> None:
    sent = bytes(recorder.from_sites)
    # The recorder has seen what it should: headers of answers and whole adapters.
    assert sent.count(b'"learned_from"') >= 12
    adapter = d.runs / "held/rounds/0004/adapter"
    assert adapter.exists()
    sizes = [line["bytes"] for line in ledger(d.kit("east") / "data") if line["field"] == "vector"]
    assert set(sizes) == {512 * 4 * 4} and len(sent) > 12 * sizes[0]
    for text in (SECRET, "patient", "rare disease", "move up", "Thought:", "I have seen this"):
        assert text.encode() not in sent, text
        assert text.encode("utf-16-le") not in sent
    # Nothing of the hub's own files either.
    asked = bytes(recorder.from_hub)
    assert asked.count(b'"layout"') >= 12
    for path in (d.runs, d.runs.parent):
        assert str(path).encode() not in asked


@pytest.mark.torture
def test_a_site_that_is_killed_between_announcing_and_sending_its_update_does_not_stop_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower takes three minutes to notice."""
    content = options()
    content.update(rounds=1, clients={"east": content["clients"]["east"]})
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("FEDSE_TEST_FLAGS", str(tmp_path / "none"))
    monkeypatch.setenv("FEDSE_TEST_SITE", "")
    local = fedse.run(Experiment(**content), tmp_path / "local")
    recorder = Recorder()
    with Deployment(tmp_path / "d", to_yaml(content), ["east"], recorder.port) as d:
        hub = d.start_hub()
        wait_for(lambda: "the hub is open" in d.log("hub"), 180, "the hub")
        recorder.stop_before = b"POST /v1/fleet/push-object "
        recorder.open(d.hub / "certificates", d.port)
        d.start_site("east")
        wait_for(lambda: recorder.stopped, 180, "an update that is announced")
        assert b"POST /v1/fleet/push-messages " in recorder.from_sites
        d.kill("east")
        recorder.stop_before = None
        d.start_site("east")
        assert hub.wait(timeout=150) == 0
        assert d.adapter() == local.adapter.digest()


@pytest.mark.torture
def test_a_server_that_is_stopped_for_a_minute_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is there all the time, and so is its port; it says nothing."""
    content = options()
    content.update(rounds=2, clients={"east": content["clients"]["east"]})
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("FEDSE_TEST_FLAGS", str(tmp_path / "none"))
    monkeypatch.setenv("FEDSE_TEST_SITE", "")
    local = fedse.run(Experiment(**content), tmp_path / "local")
    with Deployment(tmp_path / "d", to_yaml(content), ["east"]) as d:
        d.hold("exploring-east")
        hub = d.start_hub()
        d.start_site("east")
        d.wait_held("exploring-east")
        (server,) = d.children("hub", "superlink")
        os.kill(server, signal.SIGSTOP)
        wait_for(lambda: "Flower's server has not answered for" in d.log("hub"), 30, "the hub to notice")
        wait_for(lambda: "Resuming after the last complete round" in d.log("hub"), 60, "the hub to act")
        d.release("exploring-east")
        assert hub.wait(timeout=300) == 0
        assert d.adapter() == local.adapter.digest()


@pytest.mark.torture
def test_without_tls_and_keys_sites_say_who_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub made with --insecure: the same adapter, also when a site comes back as another node."""
    content = options()
    content.update(rounds=1, clients={name: content["clients"][name] for name in ("east", "west")})
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("FEDSE_TEST_FLAGS", str(tmp_path / "none"))
    monkeypatch.setenv("FEDSE_TEST_SITE", "")
    local = fedse.run(Experiment(**content), tmp_path / "local")
    with Deployment(tmp_path / "d", to_yaml(content), ["east", "west"], None, "--insecure") as d:
        assert "INSECURE" in d.init
        d.hold("exploring-west")
        hub = d.start_hub()
        for site in ("east", "west"):
            d.start_site(site)
        d.wait_held("exploring-west")
        d.kill("west")
        d.release("exploring-west")
        d.start_site("west")
        assert hub.wait(timeout=300) == 0
        assert d.adapter() == local.adapter.digest()
        assert "WARNING: this hub is INSECURE" in d.log("hub") and "WARNING: this site is INSECURE" in d.log("east")


@pytest.mark.torture
def test_keys_are_revoked_and_replaced_and_certificates_renewed_while_the_hub_is_open(tmp_path: Path) -> None:
    content = options()
    content.update(clients={"east": content["clients"]["east"]})
    public = free_port() if find_nginx() else None
    more = ["--fence"] if public else []
    with Deployment(tmp_path / "d", to_yaml(content), ["east"], public, *more) as d:

        def connected(kit: Path) -> bool:
            log = kit / "data/supernode.log"
            return log.exists() and b"SuperNode ID" in log.read_bytes()

        d.open_hub()
        first = shutil.copytree(d.kit("east"), d.folder / "first")
        site = d.start_site("east", first / "site.yaml", "first")
        wait_for(lambda: connected(first), 180, "the site")
        assert "is refused from now on" in d.fedse("hub", "revoke", "east")
        assert not d.kit("east").exists()
        d.fedse("hub", "init", str(d.hub), "--site", "east")
        (d.kit("east") / "experiment.yaml").write_text(to_yaml(content))
        d.start_site("east")
        assert site.wait(timeout=180) == 1
        assert "refuses the key" in d.log("first")
        wait_for(lambda: connected(d.kit("east")), 180, "the site with its new key")
        if public:
            before = ssl.get_server_certificate(("127.0.0.1", public))
            assert "The certificates are valid until" in d.fedse("hub", "renew")
            trusting = ssl.create_default_context(cafile=str(first / "ca.crt"))
            wait_for(lambda: shown(public, trusting) != before, 10, "the new certificate")


def shown(port: int, context: ssl.SSLContext) -> str:
    """The certificate that is shown to somebody with this trust."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as line,
    ):
        return ssl.DER_cert_to_PEM_cert(line.getpeercert(binary_form=True) or b"")


@pytest.fixture
def fence(tmp_path: Path) -> Iterator[tuple[Deployment, bool]]:
    """A hub behind a real nginx where there is one."""
    clients = {name: {"worlds": [SHORT_MAZE]} for name in ("good", "slow", "raising")}
    clients["broken"] = {"worlds": [{"name": "held_worlds:BrokenMaze", "mode": "original"}]}
    clients["slow"] = {"worlds": [{"name": "held_worlds:HeldMaze", "mode": "original"}]}
    experiment = options(
        clients=clients,
        rounds=2,
        start="none",
        filter="none",
        # Long enough for sites that start on a busy machine; it is waited for once.
        participation={"deadline_minutes": 45 / 60},
        evaluation={"tasks": 2, "tasks_per_round": 0, "test_tasks": 0},
        limits={"on_errors": "leave_out"},
    )
    public = free_port() if find_nginx() else None
    more = ["--fence"] if public else []
    with Deployment(tmp_path / "d", to_yaml(experiment), sorted(clients), public, *more) as d:
        yield d, public is not None


@pytest.mark.torture
def test_slow_broken_and_foreign_sites_and_the_fence(fence: tuple[Deployment, bool], tmp_path: Path) -> None:
    d, fenced = fence
    d.hold("exploring-slow")
    d.hold("raise-raising")
    hub = d.start_hub()
    for site in ("good", "slow", "raising", "broken"):
        d.start_site(site)
    wait_for(lambda: "the hub is open" in d.log("hub"), 180, "the hub")

    refused = strangers(d)
    if fenced:
        check_fence(d)
    for name, (process, sentence) in refused.items():
        assert process.wait(timeout=180) == 1, name
        assert re.search(sentence, d.log(name)), d.log(name)

    wait_for(lambda: d.reports("held"), 180, "the deadline of round 1")
    d.release("exploring-slow")
    assert hub.wait(timeout=300) == 0
    first, second = d.reports("held")
    assert first["diagnostics"]["contributed"] == ["good"]
    assert first["absent"] == {"slow": "TooSlow", "raising": "ValueError", "broken": "LeftOut"}
    # No longer held up, the slow site has given the old task up and takes part again.
    assert second["diagnostics"]["contributed"] == ["good", "slow"]
    assert second["absent"] == {"raising": "ValueError", "broken": "LeftOut"}
    # What was raised is told at the site, and nowhere else.
    assert SECRET in d.log("raising")
    at_the_hub = [path for path in (d.hub / "flower").rglob("*") if path.is_file()]
    assert at_the_hub
    for path in [*at_the_hub, *(path for path in d.runs.rglob("*") if path.is_file())]:
        assert SECRET.encode() not in path.read_bytes(), path
    if not fenced:
        pytest.skip("everything but the fence was tested: nginx is not installed")


def strangers(d: Deployment) -> dict[str, tuple[Any, str]]:
    """Three who must not come in: with a key the hub does not know, with no key, and with another authority."""
    other = d.folder / "other"
    d.fedse("hub", "init", str(other), "--site", "good", "--address", f"127.0.0.1:{d.public}", "--port", str(d.port))
    unknown, foreign = d.folder / "unknown", d.folder / "foreign"
    for copy in (unknown, foreign):
        shutil.copytree(d.kit("good"), copy, ignore=shutil.ignore_patterns("data"))
    for name in ("site.key",):
        shutil.copyfile(other / "sites/good" / name, unknown / name)
    shutil.copyfile(other / "sites/good/ca.crt", foreign / "ca.crt")
    line = [str(Path(sys.executable).parent / "flower-supernode"), "--superlink", f"127.0.0.1:{d.public}"]
    line += ["--root-certificates", str(d.hub / "certificates/ca.crt"), "--port", str(free_port())]
    with (d.folder / "keyless.log").open("wb") as log:
        environment = {**environment_of(d.folder / "keyless")}
        keyless = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    d._running["keyless"] = keyless
    return {
        "unknown": (d.start_site("good", unknown / "site.yaml", "unknown"), "refuses the key"),
        "foreign": (d.start_site("good", foreign / "site.yaml", "foreign"), "does not vouch for"),
        "keyless": (keyless, "Exit Code: 305"),
    }


def check_fence(d: Deployment) -> None:
    """Through the proxy nobody can submit a run, register a key or reach the runtime, however the route is spelled."""
    import httpx

    with httpx.Client(verify=str(d.hub / "certificates/ca.crt"), base_url=f"https://127.0.0.1:{d.public}") as client:
        direct = httpx.Client(verify=str(d.hub / "certificates/ca.crt"), base_url=f"https://127.0.0.1:{d.port}")
        for route in ("control/list-runs", "control/start-run", "control/register-node", "runtime/acquire-task"):
            # Without the proxy the route is there: it is the proxy that closes it.
            assert direct.post(f"/v1/{route}", content=b"").status_code not in (403, 404), route
            for spelled in (route, f"fleet/../{route}", f"fleet/%2e%2e/{route}", f"/{route}", route.upper()):
                request = client.build_request("POST", f"/v1/{route}", content=b"")
                request.url = request.url.copy_with(raw_path=f"/v1/{spelled}".encode())
                assert client.send(request).status_code == 403, spelled
        assert client.get("/docs").status_code == 403 and client.get("/v1/fleet/get-run").status_code == 403
        assert client.post("/v1/fleet/get-run", content=b"").status_code not in (403, 404)

    home = d.folder / "intruder"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink.hub]\naddress = "127.0.0.1:{d.public}"\nroot-certificates = "{d.hub}/certificates/ca.crt"\n'
    )
    environment = {**environment_of(home)}
    line = [str(Path(sys.executable).parent / "flwr"), "run", str(d.hub / "bundle"), "hub"]
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=180)
    assert done.returncode != 0 and "Successfully started" not in done.stdout + done.stderr
