"""`fedse aggregators` and `fedse aggregators check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedse.cli import app
from fedse.plugins.shipped import KNOWN

TAKES_THE_FIRST = """
import numpy as np
from fedse.aggregators.mean import Mean

class TakesTheFirst(Mean):
    def weights(self, updates):
        return np.eye(1, len(updates))[0]
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["aggregators", *arguments], env={"COLUMNS": "200"})


def test_the_list_names_every_aggregator() -> None:
    shown = run().output
    assert [name for name in KNOWN["aggregator"] if f" {name} " not in shown] == []


def test_a_check_prints_every_promise_and_what_was_seen() -> None:
    result = run("check", "fedavgm", "--set", "learning_rate=5e-1")
    assert result.exit_code == 0
    assert "equal updates: not promised" in result.output
    assert "fedavgm keeps its 10 promises; 4 not promised." in result.output


def test_a_broken_promise_of_ones_own_class_is_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "takes_the_first.py").write_text(TAKES_THE_FIRST)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run("check", "takes_the_first:TakesTheFirst")
    assert result.exit_code == 1
    assert "FAIL order of clients: another order of 2 clients changes the result" in result.output


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("momentm=0.1", "fedavgm: there is no option 'momentm': did you mean 'momentum'?"),
        ("momentum=2", "fedavgm: option 'momentum': Input should be less than 1."),
        ("momentum", "write it as KEY=VALUE, for example --set learning_rate=0.5."),
    ],
)
def test_a_wrong_option_is_one_sentence(setting: str, sentence: str) -> None:
    result = run("check", "fedavgm", "--set", setting)
    assert result.exit_code == 2
    assert sentence in result.output
