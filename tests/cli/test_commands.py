"""The commands as a user runs them: real processes on real runs."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

import fedse
from fedse.cli import app, doctor
from fedse.cli.model_card import BASE
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder
from fedse_command import command


def here(*arguments: object) -> Result:
    """In this process, which has imported torch already: that takes longer than what a test wants of it."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a table, made through the command line."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "experiment.yaml").write_text(
        """
name: table
rounds: 2
model: {name: table, rows: 512}
policy: table
learner: table
clients:
  east: {worlds: [{name: maze, mode: original, rules: brief, observation_length: brief}]}
  west: {worlds: [{name: maze, mode: original, rules: brief, observation_length: brief}]}
start: {tasks: 10}
exploration: {tasks: 10, attempts: 2}
evaluation: {tasks: 10, test_tasks: 10}
"""
    )
    done = command("run", "experiment.yaml", folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "output.txt").write_text(done.stdout)
    return folder / "runs" / "table"


def test_a_run_prints_estimate_progress_table_and_where_everything_is(finished: Path) -> None:
    output = (finished.parents[1] / "output.txt").read_text()
    for expected in (
        "2 rounds, 2 clients",
        "MB of disk",
        "round 1, east: validation success",
        "round 2 of 2 done",
        "macro",
        "success.png",
        "fedse show",
    ):
        assert expected in output, expected
    macros = re.findall(
        r"^round \d of 2 done in .*; macro ([\d.]+) % on 20 tasks with the adapter that entered it", output, re.M
    )
    reports = [json.loads((finished / f"rounds/000{n}/report.json").read_text()) for n in (1, 2)]
    assert macros == [f"{100 * report['evaluation']['macro']:.1f}" for report in reports]
    assert "prefilled" not in output and "padded" not in output, "tokens are told where they are asked for"
    closing = output.partition("round 2 of 2 done")[2]
    assert (
        not re.search(r"^round 2", closing, re.M)
        and closing.count("playing 20 episodes with the adapter after round 2") == 2
    )
    assert (finished / "success.png").read_bytes().startswith(b"\x89PNG")
    files = {path.name for path in finished.iterdir()}
    assert {"experiment.yaml", "events.jsonl", "manifest.json", "rounds", "clients", "evaluations"} <= files
    events = [json.loads(line)["event"] for line in (finished / "events.jsonl").read_text().splitlines()]
    assert events[:2] == ["made_with", "run_started"] and events.count("round_finished") == 2


def test_the_folder_of_a_run_is_answered_with_its_experiment(finished: Path) -> None:
    done = here("run", finished)
    assert done.exit_code == 2 and f"its experiment is `{finished / 'experiment.yaml'}`" in done.stderr


def test_the_command_is_told_with_its_path_where_the_shell_does_not_find_it(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["env/bin/fedse"])
    for path, typed in {str(finished): "env/bin/fedse", str(_a_folder_with("fedse", finished.parent)): "fedse"}.items():
        monkeypatch.setenv("PATH", path)
        done = here("run", finished / "experiment.yaml", "--runs", finished.parent)
        assert f"Open it as a page: {typed} view {finished}\n" in done.output


def _a_folder_with(program: str, folder: Path) -> Path:
    (folder / program).write_text("")
    (folder / program).chmod(0o755)
    return folder


def test_running_a_finished_experiment_again_changes_nothing(finished: Path) -> None:
    before = RunFolder.existing(finished).manifest()
    done = command("run", "experiment.yaml", folder=finished.parents[1])
    assert done.returncode == 0
    assert RunFolder.existing(finished).manifest() == before


@pytest.mark.slow
def test_dry_run_prints_the_resolved_experiment_and_writes_nothing(
    tmp_path: Path, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = here("run", tiny_file, "--set", "learner.epochs=5", "--set", "evaluation.test_tasks=5000", "--dry-run")
    assert done.exit_code == 0
    (tmp_path / "resolved.yaml").write_text(done.stdout)
    resolved = fedse.load_experiment(tmp_path / "resolved.yaml")
    assert resolved.learner.options["epochs"] == 5
    assert resolved == fedse.load_experiment(tiny_file, ["learner.epochs=5", "evaluation.test_tasks=5000"])
    assert "evaluation.test_tasks asks for 5,000 test tasks" in done.stderr, "what a run would warn of"
    assert re.search(r"2 rounds, 2 clients, [\d,]+ episodes, .*: roughly .* and \d+ MB of disk", done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml", "resolved.yaml"], "nothing is written"


def test_a_dry_run_is_refused_as_the_run_would_be(tmp_path: Path, tiny_file: Path) -> None:
    done = here("run", tiny_file, "--set", f"model={{name: huggingface, path: {tmp_path / 'none'}}}", "--dry-run")
    assert done.exit_code == 2 and "name: tiny" in done.stdout
    assert "there is no folder" in done.stderr


@pytest.mark.parametrize("library", ["dp_accounting", "cryptography"])
def test_noise_without_its_libraries_is_refused_before_anything_is_written(
    library: str, tmp_path: Path, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    noisy = ("run", tiny_file, "--set", "learner.name=dp_imitation", "--runs", tmp_path / "runs")
    for more in ((), ("--dry-run",)):
        done = here(*noisy, *more)
        assert done.exit_code == 2 and f"needs the library {library.replace('_', '-')}" in done.stderr, done.output
    assert not (tmp_path / "runs").exists()


def test_keys_that_do_not_go_together_are_one_sentence_without_the_experiment(tiny_file: Path) -> None:
    done = here("run", tiny_file, "--set", "aggregator=norm_bounded", "--set", "sending.secure_sum={}")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"fedse: {tiny_file}: `aggregator: norm_bounded` looks at single updates"), (
        done.stderr
    )
    assert "got {" not in done.stderr


def test_one_round_is_one_round_and_tokens_are_told_when_asked_for(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(table_experiment(clients={"east": {"worlds": ["maze"]}}, rounds=1).to_yaml())
    done = here("run", file, "--runs", tmp_path, "--verbose")
    assert "preparing model table and 1 client\n" in done.stdout and "1 round, 1 client," in done.stdout
    assert re.search(r"^round 1: \d+ episodes; tokens per episode: .* without the cache", done.stdout, re.M)
    assert re.search(r"^after round 1: 5 episodes; tokens per episode: ", done.stdout, re.M)


def test_bad_input_is_one_sentence_with_exit_code_two(tmp_path: Path, tiny_file: Path) -> None:
    done = command("run", "missing.yaml", folder=tmp_path)
    assert done.returncode == 2 and "there is no file missing.yaml" in done.stderr
    assert "Traceback" not in done.stderr
    for arguments, sentence in [
        (("run", tmp_path), f"{tmp_path} is a folder, not a file."),
        (("run", tiny_file, "--set", "learnr=1"), "did you mean 'learner'?"),
        (("run", tiny_file, "--set", "clients.maze.worlds.0.name=mase"), "did you mean 'maze'?"),
        (("run", tiny_file, "--set", "rounds=many"), "rounds: input should be a valid integer"),
        (("eval", tmp_path), "is not a run"),
        (("show", tmp_path / "nothing"), "is not a run: there is no such folder"),
        (("runs", "unpack", tiny_file), "cannot unpack"),
    ]:
        told = here(*arguments)
        assert told.exit_code == 2, (arguments, told.exception)
        assert sentence in told.stderr, told.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.yaml"]


def test_a_model_that_cannot_be_loaded_is_found_before_anything_is_written(tmp_path: Path, tiny_file: Path) -> None:
    model = f"model={{name: huggingface, path: {tmp_path / 'no model'}}}"
    done = here("run", tiny_file, "--set", model, "--runs", tmp_path / "runs")
    assert done.exit_code == 2 and "there is no folder" in done.stderr
    assert done.stdout == "tiny: preparing model huggingface and 2 clients\n", "said before the model is loaded"
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_eval_measures_any_round_and_stores_the_result(finished: Path) -> None:
    done = command("eval", finished, "--round", 0, "--split", "validation")
    assert done.returncode == 0, done.stderr
    stored = json.loads((finished / "evaluations" / "validation-0000.json").read_text())
    report = json.loads((finished / "rounds/0001/report.json").read_text())
    assert stored["macro"] == report["evaluation"]["macro"]
    assert "macro" in done.stdout
    elsewhere = command("eval", finished, "--round", 0, "--split", "validation", "--set", "engine.processes=1")
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert json.loads((finished / "evaluations" / "validation-0000.json").read_text())["macro"] == stored["macro"]
    other = command("eval", finished, "--set", "evaluation.tasks=3")
    assert other.returncode == 2 and "holds another experiment (different: evaluation.tasks)" in other.stderr
    wrong = command("eval", finished, "--round", 9)
    assert wrong.returncode == 2 and "complete rounds are 0 to 2" in wrong.stderr
    assert "did you mean 'maze'?" in command("eval", finished, "--world", "mazes").stderr


@pytest.mark.slow
def test_show_prints_the_curve_and_a_readable_trajectory(finished: Path) -> None:
    done = command("show", finished, "--client", "east", "--outcome", "success", "--number", 2)
    assert done.returncode == 0, done.stderr
    for expected in ("after round", "Thought:", "Action:", "move", "2 of ", "success"):
        assert expected in done.stdout, expected
    assert "No such trajectory" in command("show", finished, "--outcome", "error").stdout
    assert "· evaluate ·" in command("show", finished, "--split", "test").stdout
    for arguments, sentence in [
        (("--client", "wets"), "did you mean 'west'?"),
        (("--round", 99), "has no round 99: complete rounds are 0 to 2"),
        (("--split", "tset"), "--split tset: did you mean 'test'? Known: train, validation, test."),
    ]:
        refused = command("show", finished, *arguments)
        assert refused.returncode == 2 and sentence in refused.stderr and not refused.stdout


@pytest.mark.slow
def test_runs_are_listed_packed_and_go_on_elsewhere(finished: Path, tmp_path: Path) -> None:
    listing = command("runs", folder=finished.parents[1])
    assert "table" in listing.stdout and "2/2" in listing.stdout
    assert command("runs", "pack", finished, tmp_path / "packed.tar.gz").returncode == 0
    assert command("runs", "unpack", tmp_path / "packed.tar.gz", "--into", tmp_path / "elsewhere").returncode == 0
    experiment = finished.parents[1] / "experiment.yaml"
    for runs in (tmp_path / "elsewhere", finished.parent):
        done = command("run", experiment, "--set", "rounds=3", "--runs", runs)
        assert done.returncode == 0, done.stderr
    digests = {RunFolder.existing(runs / "table").digest_of(3) for runs in (tmp_path / "elsewhere", finished.parent)}
    assert len(digests) == 1


@pytest.mark.slow
def test_experience_is_exported(finished: Path, tmp_path: Path) -> None:
    for name in ("east.jsonl", "east.parquet", "east.atif"):
        done = command("export", finished, tmp_path / name, "--what", "experience", "--client", "east")
        assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "east.jsonl").read_text().splitlines()]
    assert records and {record["client"] for record in records} == {"east"}
    documents = [json.loads(line) for line in (tmp_path / "east.atif").read_text().splitlines()]
    assert [document["extra"]["task"] for document in documents] == [record["task"] for record in records]
    assert not any("metrics" in step for document in documents for step in document["steps"]), "bytes are no token ids"
    shutil.copytree(finished, tmp_path / "hub", ignore=shutil.ignore_patterns("clients"))
    hub = command("export", tmp_path / "hub", tmp_path / "none.atif")
    assert hub.returncode == 2 and "it is with the sites of this run" in hub.stderr
    assert not (tmp_path / "none.atif").exists()
    assert command("export", finished, tmp_path / "x.csv", "--what", "experience", "--client", "east").returncode == 2
    assert command("export", finished, tmp_path / "merged", "--what", "merged").returncode == 2
    assert not (tmp_path / "merged").exists()


@pytest.mark.slow
def test_a_file_of_an_unknown_ending_is_refused_and_a_folder_may_have_a_dot(finished: Path, tmp_path: Path) -> None:
    listed = "xperience goes into .json, .jsonl, .parquet or .atif files; for an adapter folder leave the ending out"
    for name, hint in (("foo.csv", "e"), ("foo.JSON", "did you mean '.json'? E"), ("foo.final", "e")):
        refused = command("export", finished, tmp_path / name)
        assert refused.returncode == 2 and not (tmp_path / name).exists()
        assert f"the ending '{Path(name).suffix}': {hint}{listed}" in refused.stderr
    for name, options in (("adapter-v1.2", ()), ("adapter.final", ("--what", "adapter"))):
        done = command("export", finished, tmp_path / name, *options)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name / "adapter_config.json").is_file()


@pytest.mark.slow
def test_what_is_exported_to_json_starts_another_run(finished: Path, tmp_path: Path) -> None:
    done = command("export", finished, tmp_path / "shown.json")
    assert done.returncode == 0, done.stderr
    records = json.loads((tmp_path / "shown.json").read_text())
    assert f"shown.json: {len(records)} trajectories" in done.stdout.replace("\n", "")
    assert {record["item_id"].partition("_")[0] for record in records} == {"maze"}
    one = command("export", finished, tmp_path / "east.json", "--client", "east")
    assert one.returncode == 0 and 0 < len(json.loads((tmp_path / "east.json").read_text())) < len(records)
    assert "did you mean 'east'?" in command("export", finished, tmp_path / "x.json", "--client", "eats").stderr

    experiment = finished.parents[1] / "experiment.yaml"
    (tmp_path / "shown.json").write_text(json.dumps([*records, {"item_id": "maze_1"}]))
    refused = command("run", experiment, "--set", "start=shown.json", "--set", "rounds=1", folder=tmp_path)
    where = f"line 1, record {len(records) + 1}"
    assert refused.returncode == 2 and f"shown.json, {where}: it has no 'conversations'" in refused.stderr
    assert not (tmp_path / "runs").exists()
    skipping = ("--set", "start={name: recorded, path: shown.json, bad_records: skip}")
    again = command("run", experiment, *skipping, "--set", "rounds=1", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"1 of {len(records) + 1} records were skipped: {where} (it has no 'conversations')" in again.stdout.replace(
        "\n", " "
    )


@pytest.mark.slow
def test_max_minutes_stops_at_a_safe_point_with_exit_code_zero(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(table_experiment(rounds=200).to_yaml())
    done = command("run", file, "--max-minutes", 0.02, "--runs", tmp_path)
    assert done.returncode == 0 and "The same command resumes the run" in done.stdout
    assert 1 <= (RunFolder.existing(tmp_path / "table").last_round() or 0) < 200


def test_doctor_reports_what_is_there_and_how_to_mend_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    done = here("doctor")
    assert done.exit_code == 0
    for expected in ("fedse", "numpy", "torch", "cores", "free"):
        assert expected in done.stdout
    wrong = sum(bool(finding.mend) and not finding.optional for finding in doctor.examine())
    monkeypatch.setitem(doctor.EXTRAS, "no-such", ("plots", "nothing"))
    monkeypatch.setitem(doctor.FURTHER, "none-such", ("flower", "several machines"))
    told = here("doctor").stdout
    assert "pip install -e '.[plots]'" in told and f"What can be mended: {wrong + 1}." in told
    assert re.search(
        r"^-\s+none-such\s+not installed; for several machines\s+`pip install -e '.\[flower\]'`", told, re.M
    )


def test_doctor_looks_for_nginx_where_there_may_be_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    monkeypatch.setattr("fedse.apps.fence.find_nginx", lambda: None)
    (missing,) = [finding for finding in doctor.examine() if finding.what == "nginx"]
    assert "`fedse hub run`" in missing.state and "apt-get install nginx-light" in missing.mend and missing.optional
    monkeypatch.setattr("fedse.apps.fence.find_nginx", lambda: "/usr/sbin/nginx")
    assert doctor.Finding("nginx", "/usr/sbin/nginx") in [*doctor.examine()]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert not [*doctor._fence()]


def test_doctor_knows_every_extra_that_a_user_may_want() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (whole,) = re.findall(r"\[(.*)\]", extras["all"][0])
    assert {extra for extra, _ in doctor.EXTRAS.values()} == set(whole.split(","))
    assert {extra for extra, _ in doctor.FURTHER.values()} == extras.keys() - {
        *whole.split(","),
        "all",
        "demo",
        "docs",
        "dev",
    }
    for name, (extra, _) in {**doctor.EXTRAS, **doctor.FURTHER}.items():
        assert any(re.match(rf"{name}\b", needed) for needed in extras[extra]), name


@pytest.mark.slow
def test_a_language_model_run_exports_an_adapter_for_peft_and_a_merged_model(tiny_file: Path, tmp_path: Path) -> None:
    import numpy as np
    import peft
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from fedse.models.tiny import Tiny

    assert here("run", tiny_file, "--runs", tmp_path).exit_code == 0
    for what in ("adapter", "merged"):
        assert here("export", tmp_path / "tiny", tmp_path / what, "--what", what).exit_code == 0
    loaded = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    card = (tmp_path / "adapter/README.md").read_text()
    assert f"`{BASE}`" in card and 'AutoModelForCausalLM.from_pretrained("adapter/base")' in card
    plain = Tiny(width=32, layers=2).network.unload().state_dict()
    beside = AutoModelForCausalLM.from_pretrained(tmp_path / "adapter" / BASE).state_dict()
    assert all(torch.equal(tensor, plain[name]) for name, tensor in beside.items()) and len(beside) == len(plain)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    ids = torch.tensor([tokenizer("Thought: up.\nAction: move up")["input_ids"]])
    with torch.no_grad():
        ours, theirs = loaded(ids).logits.numpy(), merged(ids).logits.numpy()
    assert np.abs(ours - theirs).max() < 1e-4


def test_a_forgotten_setting_is_answered_with_the_command_that_resumes_the_run(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    file, runs = tmp_path / "experiment.yaml", tmp_path / "mine"
    file.write_text(table_experiment(rounds=1).to_yaml())
    assert here("run", file, "--set", "exploration.tasks=3", "--runs", runs).exit_code == 0
    forgotten = here("run", file, "--set", "rounds=2", "--runs", runs)
    assert forgotten.exit_code == 2 and "(different: exploration.tasks)" in forgotten.stderr
    assert "remove" not in forgotten.stderr
    (offered,) = re.findall(r"`fedse (run [^`]*)`", forgotten.stderr)
    assert here(*offered.split(), "--set", "rounds=2").exit_code == 0
    assert RunFolder.existing(runs / "table").last_round() == 2
    fewer = here(*offered.split(), "--set", "rounds=1")
    assert fewer.exit_code == 2 and "already has 2 rounds" in fewer.stderr and "--set rounds=2" in fewer.stderr
