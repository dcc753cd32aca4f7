"""What the page is told is what the run's folder holds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_runs import CONTENT, HOSTILE, Broken, Hostile, make_run
from typer.testing import CliRunner

from fedse.cli import app
from fedse.errors import BadInput, TooManyErrors
from fedse.evaluation.metrics import wilson
from fedse.events import EpisodesPlanned, Evaluated, RoundFinished, RoundStarted, RunStarted, Warned
from fedse.experience.buffer import read_file
from fedse.experience.journal import Journal
from fedse.page.answers import Answers, NotThere, tame
from fedse.page.catalogue import PAGE, Catalogue
from fedse.page.episode import likelihoods, mask
from fedse.page.overview import above_the_floor, means
from fedse.page.progress import Progress
from fedse.page.shown import Shown, by_name
from fedse.runs.event_log import Logged
from fedse.runs.folder import RunFolder
from fedse.runs.in_use import in_use
from fedse.runs.reading import RunView
from fedse.types import Outcome, Purpose, Trajectory


@pytest.fixture(scope="session")
def answers(shown: Shown) -> Answers:
    return Answers({"small": shown})


@pytest.fixture(scope="session")
def played(finished: Path) -> dict[str, Trajectory]:
    """Every trajectory in journals and buffers by its name in links, read without the page."""
    found = {}
    for client in ("east", "west"):
        journal = Journal(finished / "clients" / client / "episodes")
        began = read_file(finished / "clients" / client / "buffer.sqlite")
        demonstrated = [item for item in began if item.purpose is Purpose.DEMONSTRATE]
        found |= {f"{client}/demonstrations/{line}": item for line, item in enumerate(demonstrated)}
        for name in journal.names():
            for line, trajectory in enumerate(journal.read(name)):
                found[f"{client}/{name}/{line}"] = trajectory
    return found


def ids(catalogue: Catalogue, **asked: str) -> list[str]:
    first = catalogue.page(asked)
    rows = [row for number in range(first["pages"]) for row in catalogue.page(asked, number)["rows"]]
    assert len(rows) == first["fitting"]
    return [row["id"] for row in rows]


def test_pages_hold_every_trajectory_once(shown: Shown, played: dict[str, Trajectory]) -> None:
    assert len(played) > 2 * PAGE
    found = ids(shown.catalogue)
    assert sorted(found) == sorted(played) and len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({"client": "west"}, lambda item: item.client == "west"),
        ({"world": "maze", "outcome": "success"}, lambda item: (item.world, item.outcome) == ("maze", "success")),
        ({"purpose": "explore", "round": "2"}, lambda item: item.purpose is Purpose.EXPLORE and item.round == 2),
        ({"least": "100", "most": "500"}, lambda item: 100 <= sum(item.train_mask) <= 500),
        ({"task": "1"}, lambda item: "1" in item.task),
        ({"text": 'MOVE "walls above you"'}, lambda item: "walls above you" in said(item) and "move" in said(item)),
        ({"text": "pwned"}, lambda item: item.world == "Hostile"),
        ({"text": "100%_nothing"}, lambda _: False),
    ],
)
def test_filters_and_search_find_what_fits(
    shown: Shown, played: dict[str, Trajectory], asked: dict[str, str], fits: Any
) -> None:
    assert sorted(ids(shown.catalogue, **asked)) == sorted(name for name, item in played.items() if fits(item))


def said(trajectory: Trajectory) -> str:
    return (
        " ".join(f"{step.observation} {step.reply}" for step in trajectory.steps).lower() + trajectory.closing.lower()
    )


def test_they_are_sorted_as_asked_and_know_their_neighbours(
    shown: Shown, answers: Answers, played: dict[str, Trajectory]
) -> None:
    longest = ids(shown.catalogue, sort="tokens down", client="east")
    sizes = [sum(played[name].train_mask) for name in longest]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 3
    around = answers.view("small", "trajectory", {"id": longest[4], "sort": "tokens down", "client": "east"})["around"]
    assert around == {"position": 5, "fitting": len(longest), "previous": longest[3], "next": longest[5]}
    assert ids(shown.catalogue, sort="tokens; DROP TABLE episodes") == ids(shown.catalogue)


def test_what_is_in_the_buffer_is_marked(shown: Shown, finished: Path) -> None:
    kept = {
        (item.client, item.round, item.task, item.attempt)
        for client in ("east", "west")
        for item in read_file(finished / "clients" / client / "buffer.sqlite")
    }
    marked = [row for row in shown.catalogue.every() if row["kept"]]
    assert kept and {(row["client"], row["round"], row["task"], row["attempt"]) for row in marked} == kept


def test_a_trajectory_is_told_whole(answers: Answers, played: dict[str, Trajectory]) -> None:
    name = next(name for name, item in played.items() if item.world == "maze" and len(item.steps) > 2)
    told, item = answers.view("small", "trajectory", {"id": name}), played[name]
    assert [(step["observation"], step["action"]) for step in told["said"]] == [
        (step.observation, step.action) for step in item.steps
    ]
    assert [bool(flag) for flag, length in told["mask"] for _ in range(length)] == list(item.train_mask)
    assert {row["id"] for row in told["same"]} == {
        other for other, one in played.items() if (one.world, one.task) == (item.world, item.task)
    }
    assert [row["adapter"] for row in told["same"]] == sorted(row["adapter"] for row in told["same"])


def test_the_world_is_drawn_before_each_step_and_at_the_end(answers: Answers, played: dict[str, Trajectory]) -> None:
    name = next(name for name, item in played.items() if item.world == "Hostile" and item.outcome == "success")
    told, world = answers.view("small", "trajectory", {"id": name}), Hostile(mode="original")
    world.reset(options={"task": played[name].task})
    drawn = [world.drawing()]
    for step in played[name].steps:
        world.step(step.action)
        drawn.append(world.drawing())
    assert told["note"] == "" and len(told["drawings"]) == len(drawn) and len(set(drawn)) > 1
    for pieces, drawing in zip(told["drawings"], drawn, strict=True):
        text = "".join(text for text, _ in pieces)
        assert text.count("█") == drawing.count("█") and ["red", "fg1"] in pieces
        assert "\x1b" not in text and "\\x1b[2J" in text


def test_no_code_that_a_run_names_is_loaded_unasked(finished: Path, played: dict[str, Trajectory]) -> None:
    careful = Shown.of(RunView.existing(finished))
    drawn = {item.world: careful.drawings.of(item) for item in played.values()}
    assert drawn["maze"]["drawings"] and not drawn["Hostile"]["drawings"]
    assert "--own-worlds" in drawn["Hostile"]["note"]


def test_what_is_answered_differently_is_not_drawn(shown: Shown, played: dict[str, Trajectory]) -> None:
    from dataclasses import replace

    item = next(item for item in played.values() if item.world == "maze" and len(item.steps) > 3)
    steps = list(item.steps)
    steps[2] = replace(steps[2], observation="Somewhere else.")
    found = shown.drawings.of(replace(item, steps=tuple(steps)))
    assert len(found["drawings"]) == 2 and "says something else at step 3" in found["note"]
    assert "no such world" in shown.drawings.of(replace(item, client="north"))["note"]


def test_the_overview_has_the_reports_numbers(answers: Answers, finished: Path) -> None:
    told = answers.view("small", "overview", {})
    for number in (1, 2):
        report = json.loads((finished / f"rounds/{number:04d}/report.json").read_text())
        mean = told["means"][number - 1]
        assert mean["macro"] == report["evaluation"]["macro"] and mean["micro"] == report["evaluation"]["micro"]
        assert mean["micro_interval"] == report["evaluation"]["micro_interval"]
    assert [len(world["rows"]) for world in told["worlds"]] == [3, 3]
    assert (told["kind"], told["done"], told["planned"], told["running"]) == ("run", 2, 2, False)
    assert told["totals"]["up"] == sum(client["bytes"] for client in told["clients"]) > 0
    assert {client["doing"] for client in told["clients"]} == {"sent"}
    assert told["place"] == (finished / "events.jsonl").stat().st_size
    assert told["tests"]["macro"] == json.loads((finished / "evaluations/test-0002.json").read_text())["macro"]


def test_explorations_that_broke_are_told(tmp_path: Path) -> None:
    clients = {"west": {"worlds": [{"name": Broken, "mode": "original"}]}}
    folder = make_run(tmp_path, clients=clients, rounds=1, start="none", limits={"max_error_share": 1.0})
    answers = Answers({"small": Shown.of(RunView.existing(folder))})
    (problem,) = [item for item in answers.view("small", "overview", {})["problems"] if item.get("asked")]
    assert problem["text"] == "west: 20 of 20 explorations ended in an error"
    asked = {key: str(value) for key, value in problem["asked"].items()}
    page = answers.view("small", "trajectories", {**asked, "purpose": "explore"})
    assert page["fitting"] == 20
    told = answers.view("small", "trajectory", {"id": page["rows"][0]["id"]})
    assert told["error"] == "RuntimeError" and "It fell apart." in told["detail"]


def test_a_round_that_was_not_completed_is_told(tmp_path: Path) -> None:
    clients = {"west": {"worlds": [{"name": Broken, "mode": "original"}]}}
    with pytest.raises(TooManyErrors) as why:
        make_run(tmp_path, clients=clients, rounds=1, start="none")
    told = Answers({"small": Shown.of(RunView.existing(tmp_path / "small"))}).view("small", "overview", {})
    assert [(item["round"], item["text"].split(",")[0]) for item in told["problems"]] == [
        (1, "west: 20 of 20 explorations ended in an error"),
        (1, "The run stopped in this round"),
    ]
    assert told["problems"][1]["text"].endswith(f": {why.value}")
    folder = RunFolder(tmp_path / "small")
    folder.lock()
    try:
        going_on = Answers({"small": Shown.of(RunView.existing(tmp_path / "small"))}).view("small", "overview", {})
    finally:
        folder.unlock()
    assert going_on["problems"] == told["problems"][:1]


def test_a_round_that_is_stored_did_not_stop(tmp_path: Path) -> None:
    """Killed before the event of its end was written, or begun again with fewer rounds than it had."""
    folder = make_run(tmp_path, rounds=1)
    events = folder / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(line for line in lines if '"event": "round_finished"' not in line))
    assert not _stopped(folder)
    started = {"run_started": '"round": 1, "rounds": 1', "round_started": '"round": 2'}
    begun, again = (f'{{"time": 1.0, "version": 1, "event": "{name}", {told}}}\n' for name, told in started.items())
    events.write_text("".join([*lines, again]))
    assert _stopped(folder), "the control"
    events.write_text("".join([*lines, again, begun]))
    assert not _stopped(folder)


def _stopped(folder: Path) -> bool:
    told = Answers({"small": Shown.of(RunView.existing(folder))}).view("small", "overview", {})
    return any("stopped in this round" in item["text"] for item in told["problems"])


def row(adapter: int, successes: int, episodes: int = 20, floor: float = 0.1, world: str = "maze") -> dict[str, Any]:
    return {
        **{
            "world": world,
            "adapter": adapter,
            "successes": successes,
            "episodes": episodes,
            "success": successes / episodes,
        },
        **{"interval": wilson(successes, episodes), "floor": floor, "ceiling": 1.0},
    }


def test_the_round_from_which_a_world_works_is_found() -> None:
    assert above_the_floor([row(0, 2), row(1, 12), row(2, 3), row(3, 11), row(4, 15)]) == 3
    assert above_the_floor([row(0, 12)]) == 0
    assert above_the_floor([row(0, 5), row(1, 90, 200, floor=0.3)]) == 1
    assert above_the_floor([row(0, 12), row(1, 3)]) is None and above_the_floor([]) is None


def test_a_few_lucky_tasks_are_not_clearly_above_the_floor() -> None:
    chance = 1 / 120
    few = [row(number, 1, 10, floor=0.0) for number in range(1, 6)]
    assert above_the_floor([row(0, 1, 40, chance), *few]) is None
    assert above_the_floor([row(0, 1, 40, chance), *few, row(6, 6, 40, chance)]) is None, "the floor is an estimate too"
    assert above_the_floor([row(0, 1, 40, chance), *few, row(6, 8, 40, chance)]) == 6
    assert above_the_floor([row(0, 1, 40, chance), row(1, 8, 10, 0.0), row(2, 8, 40, chance)]) == 1
    assert above_the_floor([*(row(number, 7, 10, 0.24) for number in range(1, 20)), row(20, 130, 200, 0.24)]) == 1


def test_means_count_only_rounds_in_which_all_were_measured() -> None:
    found = means({"a": [row(0, 10), row(1, 20)], "b": [row(0, 5, 50)]})
    assert [(point["adapter"], point["macro"], point["micro"]) for point in found] == [(0, 0.3, 15 / 70)]


def test_a_second_site_of_a_world_makes_no_interval_narrower_and_one_of_another_world_does() -> None:
    (alone,) = means({"a": [row(0, 10)]})
    (same,) = means({"a": [row(0, 10)], "b": [row(0, 10)]})
    (other,) = means({"a": [row(0, 10)], "b": [row(0, 10, world="textcraft")]})
    for kind in ("macro_interval", "micro_interval"):
        assert same[kind] == pytest.approx(alone[kind])
        assert other[kind][1] - other[kind][0] < 0.8 * (alone[kind][1] - alone[kind][0])


def test_progress_tells_what_is_done_what_is_left_and_what_went_wrong() -> None:
    told = [
        RunStarted(round=1, rounds=6),
        RoundStarted(round=2),
        EpisodesPlanned(clients={"east": 7}),
        Warned(message="Careful.", kind="x", details={"round": 2}),
        Warned(message="Careful.", kind="x", details={"round": 2}),
        RoundFinished(round=2, seconds=10.0, refused={"west": "it is NaN"}, contributed=[], absent={"south": "late"}),
        RoundFinished(round=3, seconds=20.0, refused={}, contributed=["east"]),
    ]
    progress = Progress([Logged(float(number), event, number) for number, event in enumerate(told)])
    assert progress.left(100.0) == 3 * 15.0 and progress.doing == {"east": "plays 7 episodes"}
    assert [(item["text"], item["times"]) for item in progress.problems] == [
        ("Careful.", 2),
        ("The update of west was refused: it is NaN", 1),
        ("south did not answer: late", 1),
    ]
    within = Progress([Logged(50.0, event, 0) for event in (*told, RoundStarted(round=4))])
    assert within.left(55.0) == 3 * 15.0 - 5.0 and within.left(500.0) == 2 * 15.0
    over = Progress(
        [Logged(0.0, event, 0) for event in (*told[:1], Evaluated(round=6, split="test", macro=0.5, micro=1))]
    )
    assert over.left(0.0) is None and "50.0 %" in over.feed[-1]["text"]


def test_a_damaged_log_is_read_as_far_as_it_can_be() -> None:
    wrong: Any = [1]
    told = [
        RunStarted(round=0, rounds=wrong),
        RunStarted(round=0, rounds=3),
        EpisodesPlanned(clients=wrong),
        Evaluated(round=1, split="test", macro=wrong, micro=0.0),
        RoundFinished(round=1, seconds=wrong, refused={}, contributed=[]),
        RoundFinished(round=2, seconds=4.0, refused=wrong, contributed=[]),
    ]
    progress = Progress([Logged(0.0, event, 0) for event in told])
    assert (progress.planned, progress.left(0.0)) == (3, 4.0)


def test_whether_a_process_holds_the_run_is_seen_without_holding_it(tmp_path: Path) -> None:
    assert in_use(tmp_path) is False
    folder = RunFolder(tmp_path)
    folder.lock()
    assert in_use(tmp_path) is True
    folder.unlock()
    assert in_use(tmp_path) is False


def test_clients_have_the_reports_numbers(answers: Answers, finished: Path) -> None:
    told = answers.view("small", "clients", {})
    report = json.loads((finished / "rounds/0002/report.json").read_text())
    entry = told["rounds"][1]["clients"]["west"]
    assert entry["norm"] == report["diagnostics"]["update_norm"]["west"]
    assert entry["counts"] == report["clients"]["west"]["counts"]
    for client, rows in told["buffers"].items():
        stored = read_file(finished / "clients" / client / "buffer.sqlite")
        assert sum(row["count"] for row in rows) == len(stored)
        assert {row["source"] for row in rows} >= {"demonstrations"}
    assert set(told["side_by_side"]) == {"east: maze", "west: Hostile"}


def test_many_clients_come_in_pages(shown: Shown, answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedse.page.answers.CLIENTS", 1)
    for view in ("clients", "left"):
        pages = [answers.view("small", view, asked) for asked in ({}, {"page": "1"}, {"client": "west"}, {"page": "9"})]
        names = [[item if isinstance(item, str) else item["client"] for item in page["clients"]] for page in pages]
        assert names == [["east"], ["west"], ["west"], []]
        assert [(page["page"], page["pages"], page["total"]) for page in pages[:3]] == [(0, 2, 2), (1, 2, 2), (1, 2, 2)]


def test_what_left_is_the_ledger(answers: Answers, finished: Path) -> None:
    told = answers.view("small", "left", {})
    for client in told["clients"]:
        lines = (finished / "clients" / client["client"] / "ledger.jsonl").read_text().splitlines()
        assert client["lines"] == [json.loads(line) for line in lines] and client["unreadable"] == 0
        assert client["bytes"] == sum(json.loads(line)["bytes"] for line in lines)
        assert {part["what"] for part in client["stayed"]} >= {"trajectories (buffer)", "every episode (journal)"}


def test_damage_is_told_and_the_rest_is_shown(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    shutil.copytree(finished, folder)
    journal = folder / "clients/east/episodes/0001.jsonl"
    lost = len(journal.read_text().splitlines())
    journal.write_text(journal.read_text()[:-20])
    with (folder / "clients/west/ledger.jsonl").open("a") as ledger:
        ledger.write('{"half": \n[1]\n')
    (folder / "clients/west/buffer.sqlite").write_bytes(b"not a database at all")
    answers = Answers(by_name([Shown.of(RunView.existing(folder))]))
    page = answers.view("small", "trajectories", {})
    assert [name for name in ("buffer.sqlite", "0001.jsonl") if name not in " ".join(page["problems"])] == []
    assert page["total"] == 144 - 3 - lost
    assert [client["unreadable"] for client in answers.view("small", "left", {})["clients"]] == [0, 2]
    assert answers.view("small", "clients", {})["buffers"]["west"] == []


def test_a_hub_has_no_trajectories_and_a_site_has_its_own(finished: Path, shown: Shown, tmp_path: Path) -> None:
    hub, site = tmp_path / "hub", tmp_path / "site"
    shutil.copytree(finished, hub, ignore=shutil.ignore_patterns("clients"))
    shutil.copytree(finished / "clients/east", site / "clients/east")
    answers = Answers({"hub": Shown.of(RunView.existing(hub)), "site": Shown(RunView(site), shown.experiment, "site")})
    told = {view: answers.view("hub", view, {}) for view in ("overview", "clients", "trajectories", "left")}
    assert {answer["kind"] for answer in told.values()} == {"hub"}
    assert told["overview"]["means"] and told["trajectories"]["total"] == 0 and told["left"]["clients"] == []
    assert "move" not in json.dumps(told), "a hub's page has counts only"
    own = {view: answers.view("site", view, {}) for view in ("overview", "clients", "trajectories", "left")}
    assert {answer["kind"] for answer in own.values()} == {"site"}
    assert own["trajectories"]["total"] == 72 and own["left"]["clients"][0]["lines"]
    assert own["overview"]["means"] == []


def test_every_text_is_tame(answers: Answers, played: dict[str, Trajectory]) -> None:
    name = next(name for name, item in played.items() if item.world == "Hostile")
    told = answers.view("small", "trajectory", {"id": name})
    seen = told["said"][0]["observation"]
    assert "\\x1b]0;title\\x07\\x1b[2J \\u202eturned\\u2066" in seen and "<script>" in seen
    assert not set("\x1b\x07\u202e\u2066") & set(json.dumps(told, ensure_ascii=False))
    assert tame({"a": [float("nan"), "\u202e", Outcome.ERROR]}) == {"a": [None, "\\u202e", "error"]}
    assert HOSTILE.count("\u202e") == 1


@pytest.mark.parametrize(
    ("run", "view", "asked"),
    [
        ("other", "overview", {}),
        ("small", "runs", {}),
        ("small", "__init__", {}),
        ("small", "trajectory", {}),
        ("small", "trajectory", {"id": "east/0001/9999"}),
        ("small", "trajectory", {"id": "../../manifest/0001/0"}),
        ("small", "trajectory", {"id": "east/../../events/0"}),
        ("small", "trajectory", {"id": "east/0001/0x0"}),
        ("small", "trajectory", {"id": "east/0001/" + "9" * 4000}),
    ],
)
def test_what_is_not_there_is_refused(answers: Answers, run: str, view: str, asked: dict[str, str]) -> None:
    with pytest.raises(NotThere):
        answers.view(run, view, asked)


def test_a_run_that_goes_on_is_read_again(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    shutil.copytree(finished, folder)
    hidden = folder / "clients/east/episodes/test-0002.jsonl"
    content = hidden.read_bytes()
    hidden.unlink()
    catalogue = Catalogue(RunView.existing(folder))
    assert catalogue.page({"split": "test", "client": "east"})["fitting"] == 0
    hidden.write_bytes(content)
    assert catalogue.page({"split": "test", "client": "east"})["fitting"] == 5
    assert by_name([Shown.of(RunView.existing(folder))] * 2).keys() == {"small", "small~2"}


def test_compare_has_the_numbers_of_fedse_compare(finished: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path, name="other", method="fedit")
    answers = Answers(by_name(Shown.of(RunView.existing(path)) for path in (finished, other)))
    told = answers.view("small", "compare", {})
    done = CliRunner().invoke(app, ["compare", str(finished), str(other), "--json"])
    printed = json.loads(done.stdout)
    assert told["split"] == printed["split"] == "test" and told["pairs"] == printed["pairs"]
    assert [method["macro"] for method in told["methods"]] == [method["macro"] for method in printed["methods"]]
    curve = told["methods"][0]["means"][0]
    assert [point["macro"] for point in curve] == [
        point["macro"] for point in answers.view("small", "overview", {})["means"]
    ]
    for asked, sentence in (({"runs": "small"}, "two runs or more"), ({"against": "nobody"}, "nobody")):
        with pytest.raises(BadInput, match=sentence):
            answers.view("small", "compare", asked)


def test_curves_of_a_comparison_are_those_of_the_compared_worlds(tmp_path: Path) -> None:
    east = CONTENT["clients"]["east"]
    hard = {"worlds": [{"name": "maze", "size": 9}], "learns": False}
    both = make_run(tmp_path, name="both", clients={"east": east, "hard": hard}, rounds=1)
    one = make_run(tmp_path, name="one", clients={"east": east}, rounds=1)
    answers = Answers(by_name(Shown.of(RunView.existing(path)) for path in (both, one)))
    told = answers.view("both", "compare", {})
    printed = json.loads(CliRunner().invoke(app, ["compare", str(both), str(one), "--json"]).stdout)
    assert "Not all runs have hard: maze: compared without." in told["notes"]
    for method, same in zip(told["methods"], printed["methods"], strict=True):
        (points,), (drawn,) = method["means"], same["curves"].values()
        assert {str(point["adapter"]): point["macro"] for point in points} == drawn["east: maze"]
    everywhere = answers.view("both", "overview", {})["means"][-1]
    assert told["methods"][0]["means"][0][-1]["macro"] > everywhere["macro"], "the hard world counts on its own page"


@pytest.mark.slow
def test_a_run_that_goes_on_does_not_keep_others_from_being_compared(finished: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path, name="other", method="fedit")
    halfway = make_run(tmp_path, name="halfway", method="local_se")
    RunFolder.existing(halfway).fall_back(1, [])
    elsewhere = make_run(tmp_path, name="elsewhere", rounds=1, clients={"north": CONTENT["clients"]["east"]})
    shutil.rmtree(elsewhere / "evaluations")
    answers = Answers(by_name(Shown.of(RunView.existing(path)) for path in (finished, halfway, other, elsewhere)))
    told = answers.view("small", "compare", {"runs": "small,other,halfway,elsewhere"})
    alone = answers.view("small", "compare", {"runs": "small,other"})
    assert alone["unfinished"] == [] and told["pairs"] == alone["pairs"] and told["methods"] == alone["methods"]
    assert told["notes"][:2] == [
        "halfway has not been evaluated after its last round yet (1 of 2 rounds are complete): only its curve is shown, as "
        "far as it has come.",
        "elsewhere has not been evaluated after its last round yet (1 of 1 rounds are complete): it has other worlds, and "
        "is left out.",
    ]
    (line,) = told["unfinished"]
    reached = answers.view("halfway", "overview", {})["means"]
    assert line["label"] == "halfway" and [point["macro"] for point in line["means"][0]] == [
        point["macro"] for point in reached
    ]
    RunFolder.existing(other).fall_back(1, [])
    begun = answers.view("small", "compare", {"runs": "halfway,other"})
    assert begun["methods"] == [] and [line["label"] for line in begun["unfinished"]] == ["halfway", "other"]
    with pytest.raises(BadInput, match="no world in common"):
        answers.view("small", "compare", {"runs": "halfway,elsewhere"})


def test_runs_in_folders_of_one_name_are_told_apart(finished: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path, rounds=1)
    assert other.name == finished.name
    answers = Answers(by_name(Shown.of(RunView.existing(path)) for path in (finished, other)))
    told = answers.view("small", "compare", {})
    assert [method["runs"] for method in told["methods"]] == [["small"], ["small~2"]]
    for method in told["methods"]:
        (curve,), (name,) = method["means"], method["runs"]
        assert [point["macro"] for point in curve] == [
            point["macro"] for point in answers.view(name, "overview", {})["means"]
        ]
    printed = json.loads(CliRunner().invoke(app, ["compare", str(finished), str(other), "--json"]).stdout)
    assert [method["runs"] for method in printed["methods"]] == [[str(finished)], [str(other)]]


def test_replies_are_told_with_the_probability_of_their_tokens_where_it_is_stored(
    played: dict[str, Trajectory],
) -> None:
    item = next(item for item in played.values() if len(item.steps) > 2 and all(step.learned for step in item.steps))
    assert likelihoods(replace(item, log_probs=())) == [None] * len(item.steps)
    lengths = [length for learned, length in mask(item) if learned]
    drawn = [[-0.5 * (number + 1)] * (length - 1) + [-9.0] for number, length in enumerate(lengths)]
    told = likelihoods(replace(item, log_probs=tuple(value for own in drawn for value in own)))
    assert told == [{"mean": pytest.approx(sum(own) / len(own)), "least": -9.0} for own in drawn]
    left_out = replace(item, steps=(replace(item.steps[0], learned=False), *item.steps[1:]))
    assert likelihoods(replace(left_out, log_probs=item.log_probs or (0.0,))) == [None] * len(item.steps), (
        "not told apart"
    )
