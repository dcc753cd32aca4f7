"""The experiment file: strict, and every problem is named with its place before anything is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedse.cli import app
from fedse.errors import BadInput, CannotWrite, RunConflict
from fedse.experiments.options import Experiment, load_experiment
from fedse.experiments.running import run

BASE = """\
name: probe
model: table
clients:
  one:
    worlds: [maze]
start: none
learner: table
policy: table
"""
SITES = "a group of keys is expected here, as in `clients: {east: {worlds: [maze]}}` (the sites)"
NEXT_LINE = len(BASE.splitlines()) + 1


def _load(tmp_path: Path, text: str, *settings: str) -> Experiment:
    path = tmp_path / "probe.yaml"
    path.write_text(text, encoding="utf-8")
    return load_experiment(path, settings)


def _refusal(tmp_path: Path, text: str, *settings: str) -> str:
    with pytest.raises(BadInput) as caught:
        _load(tmp_path, text, *settings)
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["probe.yaml"]
    return str(caught.value)


@pytest.mark.parametrize(
    ("added", "where", "said"),
    [
        ("lerner: table", "lerner", "did you mean 'learner'?"),
        ("exploration:\n  tasks: 3\n  atempts: 2", "exploration.atempts", "did you mean 'attempts'?"),
        (
            "evaluation: {tassks: 3}",
            "evaluation.tassks",
            "Known keys: tasks, tasks_per_round, test_tasks, after_learning, mean_of_last, learned_by_world.",
        ),
        ("filter: {name: threshold, scores: 1}", "filter.scores", "did you mean 'score'?"),
        ("filter: {scores: 1}", "filter.scores", "it takes no options."),
    ],
)
def test_an_unknown_key_is_named_with_path_line_and_nearest(tmp_path: Path, added: str, where: str, said: str) -> None:
    message = _refusal(tmp_path, BASE + added + "\n")
    line = NEXT_LINE + len(added.splitlines()) - 1
    assert f"probe.yaml, line {line}: {where}: unknown key" in message
    assert said in message
    assert "\n" not in message


def test_an_option_of_a_world_is_checked_under_its_own_path(tmp_path: Path) -> None:
    text = BASE.replace("[maze]", "\n      - wordle\n      - name: maze\n        siz: 4")
    message = _refusal(tmp_path, text)
    assert "line 8: clients.one.worlds.1.siz: unknown key; did you mean 'size'?" in message


def test_a_value_of_a_worlds_option_is_checked_under_its_own_path(tmp_path: Path) -> None:
    message = _refusal(tmp_path, BASE.replace("[maze]", "[{name: maze, size: 2}]"))
    assert "line 5: clients.one.worlds.0.size: input should be greater than or equal to 3, got 2." in message


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("rounds: true", "rounds: input should be a valid integer, got True."),
        ("rounds: 3.0", "rounds: input should be a valid integer, got 3.0."),
        ("rounds: '3'", "rounds: input should be a valid integer, got '3'."),
        ("rounds: many", "rounds: input should be a valid integer, got 'many'."),
        ("rounds: -1", "rounds: input should be greater than or equal to 0, got -1."),
        ("rounds:", "rounds: input should be a valid integer, got None."),
        ("buffer: {repeats: 1}", "buffer.repeats: input should be a valid boolean, got 1."),
        ("exploration: {temperature: '1'}", "exploration.temperature: input should be a valid number, got '1'."),
        ("exploration: {temperature: 0}", "exploration.temperature: input should be greater than 0, got 0."),
        (
            "exploration: 3",
            "exploration: a group of keys is expected here, as in `exploration: {tasks: 50}` (how much clients explore), g",
        ),
        ("promotion: yes", "a group of keys is expected here, as in `promotion: {drop: 0.1}`"),
        ("method: localse", "'centralized_se' or 'specialist_generalist', got 'localse'; did you mean 'local_se'?"),
        ("nothing_like_it: 3", "nothing_like_it: unknown key; known keys: name, seed, method"),
        ("filter: 3", "filter: expected the name of a filter, a class, or a mapping with 'name', got 3."),
        ("filter: {name: 3}", "filter: expected the name of a filter"),
        ("filter: {name: threshold, score: .nan}", "not valid YAML (.nan is not a finite number)"),
        ("filter: treshold", "filter: unknown filter 'treshold': did you mean 'threshold'? Known: best_of_task, none"),
        ("filter: '.x:Y'", "filter: unknown filter '.x:Y'"),
        ("rounds: 2020-13-45", "not valid YAML (a value cannot be read: month must be in 1..12)"),
        ("rounds: 0x_", "not valid YAML"),
        ("rounds: !!bool maybe", "not valid YAML"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(tmp_path: Path, added: str, said: str) -> None:
    assert said in _refusal(tmp_path, BASE + added + "\n")


def test_every_problem_gets_a_line_of_its_own(tmp_path: Path) -> None:
    message = _refusal(tmp_path, BASE.replace("[maze]", "[mase]") + "rounds: x\nsede: 3\n")
    assert [line.split(": ")[1] for line in message.splitlines()] == ["rounds", "clients.one.worlds.0", "sede"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BASE.replace("    worlds: [maze]\n", "    {}\n"), "clients.one.worlds: this key is missing."),
        (BASE.replace("[maze]", "[]"), "clients.one.worlds: list should have at least 1 item"),
        (BASE.replace("[maze]", "maze"), "clients.one.worlds: input should be a valid list, got 'maze'."),
        (BASE.replace("[maze]", "[mase]"), "clients.one.worlds.0: unknown world 'mase': did you mean 'maze'?"),
        (BASE.replace("  one:\n    worlds: [maze]\n", "  {}\n"), f"clients: {SITES}, got {{}}."),
        (BASE.replace("  one:\n    worlds: [maze]\n", ""), f"clients: {SITES}, got None."),
        (
            BASE.replace("    worlds: [maze]\n", ""),
            "clients.one: a group of keys is expected here, as in `one: {worlds: [ma",
        ),
        (
            BASE.replace("  one:", "  a b:"),
            "line 4: clients.a b: 'a b' cannot be a name: use at most 100 letters, digits",
        ),
        (
            BASE.replace("name: probe", "name: a b"),
            "line 1: name: 'a b' cannot be a name: use at most 100 letters, digits",
        ),
        ("name: x\nexperiment: three.yaml\nseeds: [1]", "probe.yaml is a sweep, which `fedse sweep "),
        (BASE.replace("model: table\n", ""), "probe.yaml: model: this key is missing."),
        (BASE.replace("model: table", "model: huggingface"), "line 2: model.path: this key is missing."),
    ],
)
def test_a_missing_world_model_or_client_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in _refusal(tmp_path, text)


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "a\n", "x" * 101, "ä"])
def test_names_that_are_no_folder_names_are_refused(tmp_path: Path, name: str) -> None:
    quoted = '"' + name.replace("\n", "\\n") + '"'
    assert ": name: " in _refusal(tmp_path, BASE.replace("probe", quoted))
    assert "cannot be a name" in _refusal(tmp_path, BASE.replace("  one:", f"  {quoted}:"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must hold keys and values"),
        ("# nothing\n", "must hold keys and values"),
        ("- a\n- b\n", "must hold keys and values"),
        ("42\n", "must hold keys and values"),
        ("a: [1, 2\nb: 3\n", "line 2: not valid YAML"),
        ("a:\n\tb: 1\n", "line 2: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "line 2: not valid YAML"),
        ("a: \x07\n", "not valid YAML (unacceptable character"),
        ("a: !!python/object/apply:os.getcwd []\n", "line 1: not valid YAML"),
        (BASE + "rounds: 3\nrounds: 4\n", f"line {NEXT_LINE + 1}: the key 'rounds' is given here a second time."),
        (BASE.replace("[maze]", "[{name: maze, size: 3, size: 4}]"), "line 5: the key 'size' is given here a second"),
        (BASE + "? [a, b]\n: 3\n", f"line {NEXT_LINE}: a key must be a word."),
        (BASE + "3: 4\n", "3: keys should be strings"),
        (BASE.replace("[maze]", "[{name: maze, 3: 4}]"), "clients.one.worlds.0.3: keys should be strings"),
        (BASE + "checks: &x\n  max_norm: *x\n", "contains itself"),
    ],
)
def test_a_file_that_is_no_experiment_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    assert said in _refusal(tmp_path, text)


def test_a_file_that_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file"):
        load_experiment(tmp_path / "absent.yaml")
    with pytest.raises(BadInput, match="is a folder, not a file"):
        load_experiment(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(BadInput, match="cannot read"):
        load_experiment(tmp_path / "binary.yaml")


def test_numbers_are_read_as_they_are_meant(tmp_path: Path) -> None:
    text = BASE + "exploration: {temperature: 1e-3, tasks: 7}\nchecks: {max_norm: 2, max_value: 1.5e+2}\n"
    found = _load(tmp_path, text)
    assert (found.exploration.temperature, found.exploration.tasks) == (0.001, 7)
    assert (found.checks.max_norm, found.checks.max_value) == (2.0, 150.0)


def test_settings_reach_nested_keys_bare_slots_and_list_positions(tmp_path: Path) -> None:
    found = _load(
        tmp_path,
        BASE,
        "rounds=1",
        "rounds=3",
        "exploration.temperature=1e-2",
        "learner.rate=0.5",
        "clients.one.worlds.0.size=4",
        "clients.two.worlds=[wordle, maze]",
        "filter=threshold",
        "filter.score=0.25",
    )
    assert found.rounds == 3
    assert found.exploration.temperature == 0.01
    assert (found.learner.name, found.learner.options) == ("table", {"rate": 0.5})
    assert found.clients["one"].worlds[0].options["size"] == 4
    assert [part.name for part in found.clients["two"].worlds] == ["wordle", "maze"]
    assert (found.filter.name, found.filter.options) == ("threshold", {"score": 0.25})


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("rounds", "expected KEY=VALUE"),
        ("=3", "expected KEY=VALUE"),
        ("rounds=[1", "'[1' is not a YAML value"),
        ("rounds=2020-13-45", "is not a YAML value"),
        ("rounds=!!python/name:os.system", "is not a YAML value"),
        ("rounds=true", "rounds: input should be a valid integer, got True."),
        ("clients.one.worlds.1=maze", "'1' must be a position from 0 to 0."),
        ("clients.one.worlds.-1=maze", "'-1' must be a position from 0 to 0."),
        ("clients.one.worlds.²=maze", "'²' must be a position from 0 to 0."),
        ("clients.one.worlds=[mase]", "clients.one.worlds.0: unknown world 'mase'"),
        ("lerner.rate=1", "lerner: unknown key; did you mean 'learner'?"),
        ("learner.rat=1", "learner.rat: unknown key; did you mean 'rate'?"),
        ("learner.rate=9", "learner.rate: input should be less than or equal to 1, got 9."),
        ("name.x=3", "name: input should be a valid string"),
        ("a..b=3", "a: unknown key"),
    ],
)
def test_a_bad_setting_is_named_and_not_blamed_on_the_file(tmp_path: Path, setting: str, said: str) -> None:
    message = _refusal(tmp_path, BASE, setting)
    assert said in message
    if setting != "name.x=3":  # there both have a part in it
        assert message.startswith(f"--set {setting}: ")


def test_a_setting_below_a_plain_value_is_refused(tmp_path: Path) -> None:
    assert "'rounds' is a plain value and has no keys" in _refusal(tmp_path, BASE + "rounds: 3\n", "rounds.x=1")


@pytest.mark.parametrize(
    "added", ["", "filter: {name: threshold, score: 1e300}\n", "name_is_number", "seed: 123456789\n"]
)
def test_a_resolved_experiment_reads_back_as_itself(tmp_path: Path, added: str) -> None:
    text = BASE + added
    if added == "name_is_number":  # a text that YAML would take for a number if it were not quoted
        text = BASE.replace("probe", '"1e3"').replace(
            "model: table", 'model: {name: table, actions: ["1e-3", "yes", "7"]}'
        )
    first = _load(tmp_path, text)
    second = _load(tmp_path, first.to_yaml())
    third = _load(tmp_path, second.to_yaml())
    assert first == second == third
    assert first.to_yaml() == third.to_yaml()
    assert first.digest() == third.digest()


def test_the_digest_knows_a_changed_value(tmp_path: Path) -> None:
    assert _load(tmp_path, BASE).digest() != _load(tmp_path, BASE, "seed=1").digest()


def test_a_bare_name_and_all_its_defaults_are_the_same_experiment(tmp_path: Path) -> None:
    assert _load(tmp_path, BASE) == _load(tmp_path, BASE.replace("learner: table", "learner: {name: table, rate: 1}"))


OWN_MODULE = """
from pydantic import Field
from fedse.plugins import PluginOptions

class EveryOther:
    class Options(PluginOptions):
        offset: int = Field(default=0, ge=0)

    def __init__(self, offset=0):
        self.offset = offset

    def keep(self, trajectories):
        return list(trajectories)[self.offset :: 2]
"""


def test_a_filter_of_ones_own_is_checked_like_a_built_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "own_filter_for_experiment.py").write_text(OWN_MODULE)
    monkeypatch.syspath_prepend(str(modules))
    files = tmp_path / "files"
    files.mkdir()
    path = "own_filter_for_experiment:EveryOther"
    found = _load(files, BASE + f"filter: {{name: '{path}', offset: 1}}\n")
    assert found.filter.options == {"offset": 1}
    assert _load(files, found.to_yaml()) == found
    assert "filter.ofset: unknown key; did you mean 'offset'?" in _refusal(
        files, BASE, f"filter={path}", "filter.ofset=1"
    )
    assert "filter.offset: input should be greater" in _refusal(files, BASE, f"filter={path}", "filter.offset=-1")


def _invoke(tmp_path: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["run", *arguments, "--runs", str(tmp_path / "runs")])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("text", "settings", "sentences"),
    [
        (BASE + "lerner: x\n", [], 1),
        (BASE + "lerner: x\nrounds: y\n", [], 2),
        (BASE.replace("[maze]", "[mase]"), [], 1),
        (BASE, ["--set", "rounds"], 1),
        (BASE.replace("learner: table", "learner: imitation"), ["--set", "rounds=true"], 1),
        ("", [], 1),
    ],
)
def test_the_command_refuses_with_code_2_and_one_sentence_per_problem(
    tmp_path: Path, text: str, settings: list[str], sentences: int
) -> None:
    path = tmp_path / "probe.yaml"
    path.write_text(text)
    code, out, err = _invoke(tmp_path, str(path), *settings)
    assert code == 2
    assert out == ""
    assert err.startswith("fedse: ")
    assert len(err.splitlines()) == sentences
    assert [item.name for item in tmp_path.iterdir()] == ["probe.yaml"]


@pytest.mark.slow
def test_the_real_process_refuses_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(BASE + "lerner: x\n")
    done = subprocess.run(
        [sys.executable, "-m", "fedse", "run", "probe.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"fedse: probe.yaml, line {NEXT_LINE}: lerner: unknown key; did you mean 'learner'?")
    assert len(done.stderr.splitlines()) == 1
    assert [item.name for item in tmp_path.iterdir()] == ["probe.yaml"]


def test_parts_that_do_not_fit_each_other_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "probe.yaml"
    path.write_text(BASE.replace("learner: table", "learner: imitation"))
    code, _, err = _invoke(tmp_path, str(path))
    assert code == 2
    assert "learner: 'imitation' needs a language model" in err
    assert [item.name for item in tmp_path.iterdir()] == ["probe.yaml"]


def test_a_dry_run_prints_the_complete_experiment_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "probe.yaml"
    path.write_text(BASE)
    code, out, _ = _invoke(tmp_path, str(path), "--dry-run", "--set", "rounds=7")
    assert code == 0
    assert [item.name for item in tmp_path.iterdir()] == ["probe.yaml"]
    assert _load(tmp_path, out) == _load(tmp_path, BASE, "rounds=7")


def test_a_run_is_not_continued_under_another_experiment(tmp_path: Path) -> None:
    small = ["rounds=0", "evaluation.tasks=1", "evaluation.test_tasks=1"]
    run(_load(tmp_path, BASE, *small), tmp_path / "runs")
    with pytest.raises(RunConflict, match=r"another experiment \(different: seed\)"):
        run(_load(tmp_path, BASE, *small, "seed=1"), tmp_path / "runs")


def test_a_file_where_the_run_folder_should_be_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "probe").write_text("I was here first")
    with pytest.raises(CannotWrite, match="a file stands where a folder should be"):
        run(_load(tmp_path, BASE), tmp_path / "runs")
    with pytest.raises(CannotWrite, match="a part of the path is a file"):
        run(_load(tmp_path, BASE), tmp_path / "runs" / "probe" / "runs")
    assert (tmp_path / "runs" / "probe").read_text() == "I was here first"
