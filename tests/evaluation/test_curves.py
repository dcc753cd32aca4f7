"""Success over rounds: each row belongs to the adapter that was measured, the initial one first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedse.cli.rounds import chosen_round
from fedse.errors import BadInput
from fedse.evaluation.best_round import best_round
from fedse.evaluation.curves import curves, macro
from fedse.evaluation.metrics import summarise
from fedse.evaluation.plot import draw_run
from fedse.runs.folder import RunFolder
from fedse.storage import atomic
from fedse.types import WorldScore


def _summary(successes: int, episodes: int = 10) -> dict[str, Any]:
    maze = WorldScore("maze", "validation", episodes, successes, 10, 10, 0, {}, 0.1, 0.9)
    wordle = WorldScore("wordle", "validation", 0, 0, 0, 0, 0, {"OSError": 2}, 0.0, 1.0)
    return summarise([("maze", maze), ("site", wordle)])


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Two rounds: the reports measure the adapters that entered them, one evaluation the last."""
    experiment = "name: probe\nmodel: table\npolicy: table\nlearner: table\nclients: {east: {worlds: [maze]}}\n"
    run = RunFolder.create(tmp_path / "probe", experiment, "digest")
    run.save_round(0, "d0", lambda folder: None)
    for number in (1, 2):
        report = {"evaluation": {"adapter_of_round": number - 1, **_summary(number)}}
        text = json.dumps(report)
        run.save_round(number, "d", lambda folder, text=text: (folder / "report.json").write_text(text))  # type: ignore[misc]
    atomic.write_text(run.evaluation_path("validation", 2), json.dumps(_summary(9)))
    return run


def test_every_adapter_has_its_row_in_order(run: RunFolder) -> None:
    found = curves(run)
    assert list(found) == ["maze", "site: wordle"]
    assert [(row["adapter"], row["successes"]) for row in found["maze"]] == [(0, 1), (1, 2), (2, 9)]


def test_a_round_the_manifest_does_not_name_is_not_drawn(run: RunFolder) -> None:
    folder = run.round_folder(3)
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps({"evaluation": {"adapter_of_round": 2, **_summary(0)}}))
    assert [row["successes"] for row in curves(run)["maze"]] == [1, 2, 9]


def test_a_run_without_rounds_has_no_curves_and_no_picture(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "probe", "name: probe\n", "digest")
    assert curves(run) == {}
    assert draw_run(run) is None


def test_the_picture_is_drawn_although_one_world_gave_nothing_but_errors(run: RunFolder) -> None:
    pytest.importorskip("matplotlib")
    picture = draw_run(run)
    assert picture is not None
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_mean_of_the_worlds_is_that_of_the_reports(run: RunFolder) -> None:
    reports = [run.report(number) for number in (1, 2)]
    expected = [*(report["evaluation"]["macro"] for report in reports if report), _summary(9)["macro"]]
    assert list(macro(curves(run)).items()) == list(enumerate(expected))


def _row(adapter: int, success: float | None, tasks: int = 10) -> dict[str, Any]:
    bounds = {"interval": (0.0, 1.0), "floor": 0.1, "ceiling": 0.9, "invalid": 0.0, "episodes": tasks}
    return {"adapter": adapter, "success": success, **bounds}


LATER = {
    "old": [_row(0, 0.2), _row(1, 0.4), _row(2, 0.4), _row(3, 0.6)],
    "absent once": [_row(0, 0.0), _row(2, 0.2), _row(3, 0.2)],
    "new": [_row(2, 1.0), _row(3, 1.0)],
    "broken": [_row(0, None)],
}


def test_who_joins_later_or_is_absent_does_not_move_the_mean() -> None:
    assert macro(LATER) == pytest.approx({0: 0.1, 2: 0.3, 3: 0.4}), "two worlds, whenever both were measured"


def test_the_picture_says_who_is_not_in_the_mean(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figures: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, part, **_: (figures.append(self), Path(part).touch()))
    monkeypatch.setattr("fedse.evaluation.plot.curves", lambda _: LATER)
    draw_run(run)
    axis = figures[0].axes[4]
    assert axis.get_title() == "macro: mean of the worlds\nwithout 1 first measured later"
    assert list(axis.lines[0].get_xdata()) == [0, 2, 3]
    assert [line.get_label() for line in axis.lines] == ["success", "_"], "no point has fewer tasks than another"


def test_the_picture_has_a_panel_for_the_mean_marks_fewer_tasks_and_covers_nothing(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figures: list[Any] = []
    saving = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (figures.append(self), saving(self, *a, **k)))
    atomic.write_text(run.evaluation_path("validation", 2), json.dumps(_summary(9, 40)))
    draw_run(run)
    (figure,) = figures
    assert [axis.get_title() for axis in figure.axes] == [
        "maze (10 or 40 tasks)",
        "site: wordle",
        "macro: mean of the worlds",
    ]
    assert all(axis.get_legend() is None for axis in figure.axes), "a legend inside would lie over the curves"
    (legend,) = figure.legends
    assert "measured on fewer tasks" in [text.get_text() for text in legend.get_texts()]
    below = legend.get_window_extent().y1
    assert all(axis.get_tightbbox().y0 >= below for axis in figure.axes)
    hollow = [line for line in figure.axes[0].lines if line.get_label() == "measured on fewer tasks"]
    assert [list(line.get_xdata()) for line in hollow] == [[0, 1]]


@pytest.mark.torture
def test_the_picture_of_very_many_worlds_shows_the_first_of_them(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    import struct

    found = curves(run)["maze"]
    sizes = []
    for count in (12, 1000):
        monkeypatch.setattr(
            "fedse.evaluation.plot.curves", lambda _, count=count: {f"c{i}": found for i in range(count)}
        )
        picture = draw_run(run)
        assert picture is not None
        sizes.append(struct.unpack(">II", picture.read_bytes()[16:24]))
    assert sizes[0] == sizes[1]


def test_the_best_round_is_the_earliest_of_those_with_the_most_successes(run: RunFolder) -> None:
    assert best_round(run) == 2
    atomic.write_text(run.evaluation_path("validation", 2), json.dumps(_summary(2)))
    assert best_round(run) == 1
    assert best_round(run, "maze") == 1
    with pytest.raises(BadInput, match="no validation of client 'site' to choose a round by"):
        best_round(run, "site")


def test_where_rounds_measured_different_worlds_there_is_no_best_one(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_turn = {name: [{**_row(at, 0.5), "client": name, "world": name}] for at, name in enumerate(("east", "west"))}
    monkeypatch.setattr("fedse.evaluation.best_round.curves", lambda _: in_turn)
    with pytest.raises(BadInput, match="there is no round after which all worlds were measured"):
        best_round(run)
    assert (best_round(run, "east"), best_round(run, "west")) == (0, 1)


@pytest.mark.parametrize(("wanted", "number"), [("", 2), ("best", 2), ("0", 0), ("1", 1)])
def test_a_round_is_chosen_by_number_or_as_the_best(run: RunFolder, wanted: str, number: int) -> None:
    assert chosen_round(run, wanted) == number


@pytest.mark.parametrize("wanted", ["-1", "1.5", "worst", "9" * 30, "٣"])
def test_what_is_no_round_is_one_sentence(run: RunFolder, wanted: str) -> None:
    with pytest.raises(BadInput, match="give the number of a round, or `best`"):
        chosen_round(run, wanted)
