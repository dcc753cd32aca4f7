"""What `fedse hub init` writes, and what the hub and its sites refuse to begin with."""

from __future__ import annotations

import re
import shutil
import ssl
import stat
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from deployment import free_port
from typer.testing import CliRunner

pytest.importorskip("flwr")

from fedse.apps.hub_file import load_for_hub
from fedse.apps.hub_folder import HubFolder
from fedse.apps.site import Refused, wait_for_hub
from fedse.apps.site_file import load_site
from fedse.apps.worker import Worker
from fedse.cli import app
from fedse.engines.flower.seal import Seal
from fedse.engines.flower.wire import Parcel, pack_task
from fedse.errors import BadInput
from fedse.experiments.components import build_components
from fedse.experiments.options import load_experiment
from fedse.types import RoundTask
from fedse.worlds.training_part import TrainingPart

EXPERIMENT = """
name: small
rounds: 1
model: {name: table, rows: 64}
policy: table
learner: table
clients:
  east: {worlds: [{name: maze, mode: original}]}
  west: {worlds: [{name: maze, mode: original}]}
start: {tasks: 1}
exploration: {tasks: 2}
evaluation: {tasks: 1, test_tasks: 0}
"""


def fedse(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "hub"
    code, said = fedse("hub", "init", str(folder), "--site", "east", "--site", "west", "--address", "hub.example:8443")
    assert code == 0, said
    return folder


@pytest.fixture
def kit(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "sites/east", tmp_path / "east")
    shutil.copyfile(made / "certificates/seal.key", tmp_path / "seal.key")
    (tmp_path / "east/experiment.yaml").write_text(EXPERIMENT)
    return tmp_path / "east"


def test_secrets_are_readable_by_their_owner_only(made: Path) -> None:
    secrets = [*(made / "certificates").glob("*.key"), *made.glob("sites/*/site.key")]
    assert len(secrets) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert (
        not list(made.glob("sites/*/ca.key"))
        and not list(made.glob("sites/*/seal.key"))
        and not list(made.glob("keys/*.key"))
    )


def test_openssl_and_ssh_read_what_was_made(made: Path) -> None:
    if not shutil.which("openssl") or not shutil.which("ssh-keygen"):
        pytest.skip("needs the commands openssl and ssh-keygen")
    files = made / "certificates"
    line = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "hub.example"]
    subprocess.run([*line, "-CAfile", files / "ca.crt", files / "server.crt"], check=True, capture_output=True)
    derived = subprocess.run(
        ["ssh-keygen", "-y", "-f", made / "sites/east/site.key"], check=True, capture_output=True, text=True
    )
    assert derived.stdout.split()[:2] == (made / "keys/east.pub").read_text().split()[:2]
    assert derived.stdout.startswith("ecdsa-sha2-nistp384 ")
    ssl.create_default_context(cafile=str(files / "ca.crt"))


def test_adding_a_site_leaves_everything_else_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    fedse("hub", "init", str(folder), "--site", "east")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, said = fedse("hub", "init", str(folder), "--site", "east", "--site", "north")
    assert code == 0 and "north" in said
    assert all(path.read_bytes() == content for path, content in before.items())
    assert HubFolder.existing(folder).sites() == ["east", "north"]


def test_a_revoked_key_is_kept_apart_and_a_new_one_can_be_made_under_the_name(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    fedse("hub", "init", str(folder), "--site", "east", "--site", "west", "--address", "hub.example:8443")
    old = (folder / "keys/west.pub").read_bytes()
    code, said = fedse("hub", "revoke", "west", "--hub", str(folder))
    assert code == 0 and "when the hub is opened" in said.replace("\n", " ")
    assert HubFolder.existing(folder).sites() == ["east"] and not (folder / "sites/west").exists()
    assert [path.read_bytes() for path in (folder / "revoked").iterdir()] == [old]
    code, said = fedse("hub", "revoke", "west", "--hub", str(folder))
    assert code == 2 and "has no site 'west': it has east" in said.replace("\n", " ")
    # What was given when the hub was made need not be given again.
    code, said = fedse("hub", "init", str(folder), "--site", "west")
    assert code == 0 and (folder / "keys/west.pub").read_bytes() != old and (folder / "sites/west/site.key").exists()


def test_renewed_certificates_are_those_of_the_same_authority(tmp_path: Path) -> None:
    from cryptography import x509

    folder = tmp_path / "hub"
    fedse("hub", "init", str(folder), "--site", "east", "--address", "hub.example:8443")
    names = ["ca.crt", "server.crt"]
    old = [x509.load_pem_x509_certificate((folder / "certificates" / name).read_bytes()) for name in names]
    code, said = fedse("hub", "renew", "--hub", str(folder))
    assert code == 0 and "valid until" in said
    new = [x509.load_pem_x509_certificate((folder / "certificates" / name).read_bytes()) for name in names]
    assert [before.serial_number != after.serial_number for before, after in zip(old, new, strict=True)] == [True, True]
    assert (folder / "sites/east/ca.crt").read_bytes() == (folder / "certificates/ca.crt").read_bytes()
    new[1].verify_directly_issued_by(old[0])
    old[1].verify_directly_issued_by(new[0])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificates/server.crt", folder / "certificates/server.key")


def test_an_insecure_hub_has_nothing_to_revoke_or_renew(open_kit: Path) -> None:
    hub = str(open_kit.parents[1])
    assert fedse("hub", "revoke", "east", "--hub", hub)[0] == fedse("hub", "renew", "--hub", hub)[0] == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--site", "a/b"], "cannot be a name: use at most 100 letters"),
        (["--site", "east", "--address", "nowhere"], "give it as HOST:PORT"),
        (["--site", "east", "--address", "hub..example.org:8443"], "give it as HOST:PORT"),
        (["--site", "east", "--address", "127.0.0.1:99999"], "with a port from 1 to 65535"),
    ],
)
def test_bad_names_and_addresses_write_nothing(words: list[str], sentence: str, tmp_path: Path) -> None:
    code, said = fedse("hub", "init", str(tmp_path / "hub"), *words)
    assert code == 2 and sentence in said and not (tmp_path / "hub").exists()


def test_a_folder_with_other_things_or_other_settings_is_left_alone(made: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/dear.txt").touch()
    code, said = fedse("hub", "init", str(tmp_path / "letters"), "--site", "east")
    assert code == 2 and "not empty and not a hub" in said
    code, said = fedse("hub", "init", str(made), "--site", "east", "--address", "elsewhere:8443")
    assert code == 2 and "other settings" in said


@pytest.fixture
def open_kit(tmp_path: Path) -> Path:
    """The kit of a site whose hub was made without TLS and keys."""
    hub = tmp_path / "hub"
    code, said = fedse("hub", "init", str(hub), "--site", "east", "--address", "127.0.0.1:8443", "--insecure")
    assert code == 0 and "WARNING: this hub is INSECURE" in said
    (hub / "sites/east/experiment.yaml").write_text(EXPERIMENT)
    return hub / "sites/east"


def test_protection_is_switched_off_by_name_only(made: Path, kit: Path, open_kit: Path) -> None:
    assert not HubFolder.existing(made).options.insecure and not load_site(kit / "site.yaml").options.insecure
    assert "ssl;" in (made / "nginx.conf").read_text()
    hub = open_kit.parents[1]
    assert HubFolder.existing(hub).sites() == ["east"] and load_site(open_kit / "site.yaml").options.insecure
    assert not [path for path in hub.rglob("*") if path.suffix in {".key", ".crt", ".pub"}]
    fence = (hub / "nginx.conf").read_text()
    assert "ssl_" not in fence and "THIS HUB IS INSECURE" in fence and 'if ($route = "") { return 403; }' in fence
    code, said = fedse("hub", "init", str(hub), "--site", "west", "--address", "127.0.0.1:8443")
    assert code == 2 and "port 8000, insecure): give the same" in said.replace("\n", " ")
    code, said = fedse("hub", "init", str(made), "--site", "west", "--address", "hub.example:8443", "--insecure")
    assert code == 2 and "other settings" in said


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("insecure: true", "insecure: false"), "`authority` is missing; without TLS and keys only"),
        (("insecure: true", "insecure: true\nkey: site.key"), "`insecure: true` and `key` exclude each other"),
    ],
)
def test_a_site_is_protected_or_says_that_it_is_not(open_kit: Path, change: tuple[str, str], sentence: str) -> None:
    file = open_kit / "site.yaml"
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(BadInput, match=sentence):
        load_site(file)


def test_hub_and_site_must_agree_about_protection(kit: Path, open_kit: Path) -> None:
    plain = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    threading.Thread(target=plain.serve_forever, args=(0.02,), daemon=True).start()
    address = f"127.0.0.1:{plain.server_address[1]}"
    try:
        for file, sentence in ((kit / "site.yaml", "speaks no TLS"), (open_kit / "site.yaml", None)):
            file.write_text(re.sub(r"^hub: \S+", f"hub: {address}", file.read_text(), flags=re.MULTILINE))
            if sentence is None:
                wait_for_hub(load_site(file), pytest.fail)
                continue
            with pytest.raises(Refused, match=sentence):
                wait_for_hub(load_site(file), pytest.fail)
    finally:
        plain.shutdown()
        plain.server_close()


def test_a_site_that_finds_no_hub_says_so_less_and_less_often(open_kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = open_kit / "site.yaml"
    file.write_text(re.sub(r"^hub: \S+", f"hub: 127.0.0.1:{free_port()}", file.read_text(), flags=re.MULTILINE))
    said: list[str] = []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] > 400:
            raise KeyboardInterrupt

    monkeypatch.setattr("fedse.apps.site.time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    with pytest.raises(KeyboardInterrupt):
        wait_for_hub(load_site(file), lambda text: said.append(f"{clock[0]:.0f}: {text}"))
    assert [line.split(":")[0] for line in said] == ["0", "10", "30", "70", "150", "310"]
    assert "trying again every 2 s" in said[0]
    assert "has been out of reach for 310 s" in said[-1] and "is this the address in its hub.yaml" in said[-1]


def test_a_client_that_is_no_site_is_named_before_anything_starts(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT.replace("  west:", "  south:"))
    code, said = fedse("hub", "run", str(file), "--hub", str(made), "--runs", str(tmp_path / "runs"))
    assert code == 2 and "no sites of this hub (south)" in said.replace("\n", " ") and not (tmp_path / "runs").exists()
    code, said = fedse("hub", "run", str(file), "--hub", str(tmp_path / "none"))
    assert code == 2 and "holds no hub.yaml" in said


def test_the_hub_needs_no_world_and_agrees_with_its_sites(kit: Path, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    private = EXPERIMENT.replace("{name: maze, mode: original}", "{name: 'not_installed_here:PrivateWorld'}")
    file.write_text(private)
    hub = load_for_hub(file)
    with pytest.raises(BadInput, match="on the machines of its sites"):
        build_components(hub)
    assert set(hub.clients) == {"east", "west"} and "not_installed_here" not in hub.to_yaml()
    assert hub.terms == load_site(kit / "site.yaml").terms == load_experiment(kit / "experiment.yaml").terms
    file.write_text(private.replace("tasks: 2", "tasks: 3"))
    assert load_for_hub(file).terms != hub.terms


def test_hub_and_site_keep_who_only_measures_and_may_differ_in_what_changes_no_result(kit: Path) -> None:
    file = kit / "experiment.yaml"
    own = "east: {learns: false, training: {part: 1, of: 2}, worlds"
    file.write_text(EXPERIMENT.replace("east: {worlds", own))
    assert [options.learns for options in load_for_hub(file).clients.values()] == [False, True]
    site = load_site(kit / "site.yaml").experiment.clients["east"]
    assert not site.learns and site.training == TrainingPart(part=1, of=2)
    operational = ["rounds=7", "participation.deadline_minutes=3", "sending.max_megabytes=1", "engine.processes=2"]
    assert load_for_hub(file, operational).terms == load_for_hub(file).terms
    for setting in ("sending.precision=int8", "aggregator=median", "exploring=false", "seed=1"):
        assert load_for_hub(file, [setting]).terms != load_for_hub(file).terms


@pytest.mark.parametrize(("method", "switch"), [("local_se", "sharing: none"), ("centralized_se", "pooled: true")])
def test_methods_of_one_machine_are_refused_by_hub_and_site(kit: Path, method: str, switch: str) -> None:
    file = kit / "experiment.yaml"
    file.write_text(f"{EXPERIMENT}method: {method}\n")
    for load in (lambda: load_for_hub(file), lambda: load_site(kit / "site.yaml")):
        with pytest.raises(BadInput, match=rf"`{switch}` \(method: {method}\).*run it with `fedse run`"):
            load()


def test_a_site_may_name_its_own_worlds_cap_and_machine_without_changing_the_terms(kit: Path) -> None:
    common = load_site(kit / "site.yaml")
    with (kit / "site.yaml").open("a") as file:
        file.write("worlds: [wordle]\nmax_megabytes: 0.5\nsettings: [engine.processes=1]\n")
    own = load_site(kit / "site.yaml")
    assert [part.name for part in own.experiment.clients["east"].worlds] == ["wordle"]
    assert own.experiment.sending.max_megabytes == 0.5 and own.terms == common.terms


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("key: site.key", "key: lost.key"), "key: there is no file"),
        (("hub_key: hub.pub", ""), "`hub_key` is missing, the hub's public key: `fedse hub init` makes it"),
        (("name: east", "name: south"), "has no client 'south'"),
        (("hub: hub.example:8443", "hub: hub.example"), "site.yaml, line 3: hub"),
        (("key: site.key", "kye: site.key"), "did you mean 'key'"),
        (
            ("folder: data", "settings: [sending.precision=int8]\nfolder: data"),
            "may not change name, sharing or sending",
        ),
    ],
)
def test_a_site_file_that_cannot_be_used_is_explained(kit: Path, change: tuple[str, str], sentence: str) -> None:
    file = kit / "site.yaml"
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(BadInput, match=sentence):
        load_site(file)
    assert not (kit / "data").exists()


def test_what_is_no_site_is_told_how_a_site_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, wrong in (("none", "there is no site"), ("empty", "is no site: it holds no site.yaml")):
        code, said = fedse("site", "run", str(tmp_path / name))
        said = " ".join(said.split())
        assert (
            code == 2 and wrong in said and "give the folder that `fedse site init KIT --experiment FILE` makes" in said
        )
    assert not [*(tmp_path / "empty").iterdir()] and not (tmp_path / "none").exists()


def task_of(kit: Path, **header: str) -> Parcel:
    site = load_site(kit / "site.yaml")
    from fedse.adapters.packing import pack
    from fedse.models.table import Table

    adapter = Table(rows=64).initial_adapter(0)
    task = RoundTask(1, "train", pack(adapter), adapter.layout, adapter.config)
    parcel = pack_task(task, "east", site.experiment.name, site.terms)
    return Seal.read(kit.parent / "seal.key")(Parcel({**parcel.header, **header}, parcel.array))


def test_a_worker_does_only_what_its_own_file_says(kit: Path) -> None:
    said: list[str] = []
    worker = Worker(load_site(kit / "site.yaml"), said.append)
    for wrong in ({"terms": "other"}, {"run": "other"}, {"client": "west"}):
        assert worker.answer(task_of(kit, **wrong)).header == {"format": 5, "failure": "OtherTerms"}
    assert not (kit / "data/small/clients/east/ledger.jsonl").exists()
    assert "use the same file" in said[0]


@pytest.mark.slow
def test_the_process_that_flower_starts_for_each_message_loads_next_to_nothing_of_fedse() -> None:
    program = """
import fedse.apps.client_app, sys
heavy = ("torch", "transformers", "ray", "gymnasium", "fedse.experiments", "fedse.federation", "fedse.worlds")
assert not [name for name in sys.modules if name.startswith(heavy)]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_repeated_message_adds_nothing_and_is_in_the_ledger_again(kit: Path) -> None:
    worker = Worker(load_site(kit / "site.yaml"), lambda _: None)
    first = worker.answer(task_of(kit))
    remembered = len(worker._client.experience.buffer)
    again = worker.answer(task_of(kit))
    assert first.header == again.header and first.array is not None and again.array is not None
    assert first.array.tobytes() == again.array.tobytes() and len(worker._client.experience.buffer) == remembered > 0
    # After a restart the round is done anew, with the same result.
    anew = Worker(load_site(kit / "site.yaml"), lambda _: None)
    third = anew.answer(task_of(kit))
    assert third.array is not None and third.array.tobytes() == first.array.tobytes()
    assert len(anew._client.experience.buffer) == remembered
    ledger = (kit / "data/small/clients/east/ledger.jsonl").read_text()
    assert ledger.count('"field": "vector"') == 3


def test_the_sites_own_cap_holds(kit: Path) -> None:
    with (kit / "site.yaml").open("a") as file:
        file.write("max_megabytes: 0.0001\n")
    said: list[str] = []
    worker = Worker(load_site(kit / "site.yaml"), said.append)
    assert worker.answer(task_of(kit)).header == {"format": 5, "failure": "TooMuchLeaves"}
    assert "more than sending.max_megabytes = 0.0001 allows" in said[-1]


def test_a_site_is_made_of_a_kit_and_an_experiment_and_gets_a_new_key_the_same_way(tmp_path: Path) -> None:
    hub, experiment, site = tmp_path / "hub", tmp_path / "e.yaml", tmp_path / "east"
    experiment.write_text(EXPERIMENT)
    line = ["site", "init", str(hub / "sites/east"), str(site)]
    code, said = fedse(*line)
    assert code == 2 and "is no kit" in said.replace("\n", " ")
    fedse("hub", "init", str(hub), "--site", "east", "--site", "west")
    code, said = fedse(*line)
    assert code == 2 and "give the file that the hub runs" in said.replace("\n", " ")
    experiment.write_text(EXPERIMENT.replace("  east:", "  south:"))
    assert fedse(*line, "--experiment", str(experiment))[0] == 2
    # Whatever is refused leaves the kit and no half of a site.
    assert not site.exists() and (hub / "sites/east/site.key").exists()
    experiment.write_text(EXPERIMENT)
    code, said = fedse(*line, "--experiment", str(experiment))
    assert code == 0 and f"fedse site run {site}" in said.replace("\n", " ")
    assert not (hub / "sites/east").exists() and load_site(site / "site.yaml").name == "east"
    old = (site / "site.key").read_bytes()
    (site / "data").mkdir()
    code, said = fedse("site", "init", str(hub / "sites/west"), str(site))
    assert code == 2 and "is a kit of 'west'" in said.replace("\n", " ") and (hub / "sites/west").exists()
    fedse("hub", "revoke", "east", "--hub", str(hub))
    fedse("hub", "init", str(hub), "--site", "east")
    assert fedse(*line)[0] == 0 and (site / "site.key").read_bytes() != old and (site / "data").exists()
    assert stat.S_IMODE((site / "site.key").stat().st_mode) == 0o600
