"""Short names and dotted paths become classes; anything else is answered with a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest

from fedse.errors import CannotImport, UnknownName
from fedse.plugins import Choice, ChoiceOf, build, nearest, nearest_or_all, options_of, resolve
from fedse.plugins.shipped import KNOWN

ALL_NAMES = [(kind, name) for kind, names in KNOWN.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), ALL_NAMES)
def test_every_known_name_is_a_class_of_the_package(kind: str, name: str) -> None:
    assert resolve(kind, name).__module__.startswith("fedse.")


@pytest.mark.slow
def test_every_known_plugin_and_its_options_can_be_read_without_torch() -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'peft', 'matplotlib', 'pyarrow'): sys.modules[name] = None\n"
        "from fedse.plugins import options_of\nfrom fedse.plugins.shipped import KNOWN\n"
        "print(sum(len(options_of(kind, name).model_fields) >= 0 for kind in KNOWN for name in KNOWN[kind]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    assert int(done.stdout) == len(ALL_NAMES)


def test_a_plugin_without_options_takes_none() -> None:
    assert options_of("filter", "success").model_fields == {}


def test_a_mistyped_name_is_answered_with_the_nearest_and_all_known() -> None:
    with pytest.raises(UnknownName, match="did you mean 'threshold'") as caught:
        resolve("filter", "treshold")
    assert "best_of_task, none, success, threshold" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_short_name_is_like_another_only_where_most_letters_are() -> None:
    known = ["flora", "mean", "krum", "ties_merge"]
    found = {name: nearest(name, known) for name in ("foo", "men", "krm", "ties", "floar", "ti")}
    meant = {name: hint.removeprefix("did you mean '").removesuffix("'? ") for name, hint in found.items()}
    assert meant == {"foo": "", "men": "mean", "krm": "krum", "ties": "ties_merge", "floar": "flora", "ti": ""}


def test_what_there_is_goes_on_with_the_sentence_where_nothing_is_near() -> None:
    assert nearest_or_all("nobody", ["east", "west"], "This run has:") == "this run has: east, west"
    assert nearest_or_all("eats", ["east", "west"], "This run has:") == "did you mean 'east'? This run has: east, west"


@pytest.mark.parametrize("name", ["fedavg", "FedAvg"])
def test_a_name_of_the_field_is_answered_with_ours(name: str) -> None:
    with pytest.raises(UnknownName, match="FedAvg is `mean`") as caught:
        resolve("aggregator", name)
    assert "did you mean" not in str(caught.value)
    assert all(called in KNOWN["aggregator"] for called in ("mean", "size_weighted"))


def test_a_missing_module_is_said_to_be_missing_from_the_current_folder_too() -> None:
    with pytest.raises(UnknownName, match="no module 'no_such_file' in the current folder or on the Python path"):
        resolve("world", "no_such_file:World")


def test_a_far_off_name_gets_no_hint() -> None:
    assert nearest("zzzzzz", KNOWN["filter"]) == ""


@pytest.mark.parametrize("name", ["", ":", "a:", ":B", ".x:Y", "..:Y", "a b:C", "this..that:X", "1x:Y"])
def test_a_path_that_is_no_path_is_an_unknown_name(name: str) -> None:
    with pytest.raises(UnknownName):
        resolve("filter", name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:X", "no module 'no_such_module'"),
        ("json.no_such:X", "no module 'json.no_such'"),
        ("json:Nope", "has no class 'Nope'"),
        ("json:dumps", "is not a class"),
        ("fedse.filters.success:Success:X", "has no class 'Success:X'"),
    ],
)
def test_a_dotted_path_that_leads_nowhere_says_where_it_ends(name: str, said: str) -> None:
    with pytest.raises(UnknownName, match=said):
        resolve("filter", name)


def _module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_class_of_ones_own_is_built_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "class Mine:\n    def __init__(self, need, size=1): self.size = size\n    def keep(self, items): return items"
    )
    _module(tmp_path, monkeypatch, "own_plugin_1", source)
    made = build("filter", Choice(kind="filter", name="own_plugin_1:Mine", options={"size": 7}), "something")
    assert made.size == 7


def test_a_library_that_a_plugin_lacks_is_not_reported_as_a_missing_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _module(tmp_path, monkeypatch, "own_plugin_2", "import surely_not_installed\nclass Mine: ...")
    with pytest.raises(CannotImport, match="surely_not_installed"):
        resolve("filter", "own_plugin_2:Mine")


def test_a_bug_in_a_plugins_module_is_not_reported_as_a_missing_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _module(tmp_path, monkeypatch, "own_plugin_3", "import os\nos.no_such_function()\nclass Mine: ...")
    with pytest.raises(CannotImport, match=r"AttributeError: .*no_such_function.*own_plugin_3\.py, line 2"):
        resolve("filter", "own_plugin_3:Mine")


def test_a_class_that_does_not_fit_its_slot_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="has no method 'keep', which every filter needs"):
        resolve("filter", "builtins:int")


@pytest.mark.parametrize("path", ["shown.json", "shown.jsonl", "folder/shown.txt", "./shown.json"])
def test_a_bare_path_in_the_slot_of_the_start_is_a_file_of_records(path: str) -> None:
    from pydantic import TypeAdapter

    part = TypeAdapter(Annotated[Choice, ChoiceOf("start", "demonstrations")]).validate_python(path)
    assert (part.name, part.options) == ("recorded", {"path": Path(path), "bad_records": "refuse"})


def test_an_option_can_be_set_on_a_bare_path(tmp_path: Path) -> None:
    from fedse import load_experiment

    file = tmp_path / "probe.yaml"
    file.write_text("name: probe\nmodel: table\nclients: {one: {worlds: [maze]}}\nstart: shown.json\n")
    found = load_experiment(file, ["start.bad_records=skip"]).start
    assert (found.name, found.options) == ("recorded", {"path": Path("shown.json"), "bad_records": "skip"})


def test_a_bare_name_in_the_slot_of_the_start_stays_a_name() -> None:
    from pydantic import TypeAdapter

    slot = TypeAdapter(Annotated[Choice, ChoiceOf("start", "demonstrations")])
    assert slot.validate_python("none").name == "none"
    assert slot.validate_python({"tasks": 3}).name == "demonstrations"


def test_a_path_in_two_places_is_refused() -> None:
    from pydantic import TypeAdapter, ValidationError

    choice = TypeAdapter(Annotated[Choice, ChoiceOf("model")])
    assert choice.validate_python({"name": "./a", "path": "./a"}).options["path"] == "./a"
    with pytest.raises(ValidationError, match="both given as the path"):
        choice.validate_python({"name": "./a", "path": "./b"})


def test_operational_options_are_named_by_real_fields_and_do_not_change_identity() -> None:
    for kind, names in KNOWN.items():
        for name in names:
            options = options_of(kind, name)
            assert getattr(options, "operational", frozenset()) <= options.model_fields.keys(), name
            assert getattr(options, "rounding", frozenset()) <= options.model_fields.keys(), name
    slow, quick = (
        Choice(kind="engine", name="local", options={"processes": processes}).identity() for processes in (0, 4)
    )
    assert slow == quick == {"name": "local"}
    for kind, name, options in (
        ("model", "tiny", {"threads": 2}),
        ("policy", "transformer", {"slots": 3}),
        ("learner", "imitation", {"tokens_at_once": 9, "adapters_at_once": 2}),
    ):
        usual, other = (Choice(kind=kind, name=name, options=given) for given in ({}, options))
        assert usual.identity() != other.identity(), "a run goes on with the same roundings"
        assert usual.comparable() == other.comparable(), "and is the same method with others"
    near, far = (
        Choice(kind="policy", name="api", options={"url": url, "model": "agent"}) for url in ("http://a", "http://b")
    )
    assert near.identity() == far.identity(), "a server may move"
    assert near.comparable() != far.comparable(), "and another one may hold another model"
