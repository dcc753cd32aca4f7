"""What stands beside an exported adapter: its README.md, and its base where nobody else has that."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import fedse
from fedse.adapters.files import read_adapter
from fedse.cli import app
from fedse.cli.model_card import shown_name
from fedse.evaluation.curves import curves
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView

AFTER = Path(__file__).parents[1] / "models" / "nano_after"


def export(run: Path, target: str, *options: str) -> None:
    done = CliRunner().invoke(app, ["export", str(run), target, *options])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
def test_a_card_tells_what_was_measured_and_no_path(
    factored: type[Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = fedse.run(factored(), tmp_path / "secret").folder
    export(run, str(tmp_path / "deep" / "out"), "--round", "2")
    card = (tmp_path / "deep/out/README.md").read_text()
    assert str(tmp_path) not in card and "secret" not in card and "deep" not in card
    header = yaml.safe_load(card.split("---")[1])
    assert "fedse" in header["tags"] and "base_model" not in header
    for name, rows in curves(RunView.existing(run)).items():
        share = next(row["success"] for row in rows if row["adapter"] == 2)
        assert re.search(rf"^\| {name} \| {100 * share:.1f} % ", card, re.MULTILINE), card
    command = re.search(r"^    fedse (export .*)$", card, re.MULTILINE)
    assert command
    _, name, target, *options = command.group(1).split()
    os.chdir(run.parent)
    export(Path(name), target, *options)
    assert read_adapter(run.parent / target).digest() == read_adapter(tmp_path / "deep/out").digest()


def test_a_clients_card_tells_its_own_success_and_the_shared_one_says_with_what_it_was_measured(
    factored: type[Experiment], tmp_path: Path
) -> None:
    run = fedse.run(factored(mix="fedalt", rounds=1), tmp_path).folder
    export(run, str(tmp_path / "shared"))
    export(run, str(tmp_path / "own"), "--client", "east")
    shared, own = ((tmp_path / name / "README.md").read_text() for name in ("shared", "own"))
    assert "| west: maze |" in shared and "(`mix: fedalt`)" in shared
    assert "| east: maze |" in own and "west" not in own and "(`mix: fedalt`)" not in own


@pytest.mark.parametrize(
    ("base", "shown"),
    [
        ("acme/model", "acme/model"),
        ("/home/me/models/model", "model"),
        ("../acme/model", "model"),
        ("~/model", "model"),
    ],
)
def test_of_a_folder_the_last_part_is_told(base: str, shown: str) -> None:
    assert shown_name(base) == shown


@pytest.mark.slow
def test_nanos_adapter_finds_its_base_in_plain_peft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from peft import AutoPeftModelForCausalLM, PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from fedse.models.nano import Nano
    from fedse.networks.swap import load_adapter

    monkeypatch.chdir(tmp_path)
    world = {
        "name": "maze",
        "rules": "bare",
        "observation_length": "brief",
        "shortest": 4,
        "longest": 6,
        "turn_limit": 6,
    }
    content = {
        "name": "begun",
        "rounds": 0,
        "model": {"name": "nano", "device": "cpu", "threads": 1},
        "start_adapter": str(AFTER),
        "start": "none",
        "clients": {"maze": {"worlds": [world]}},
        "evaluation": {"tasks": 1, "test_tasks": 0},
        "policy": {"slots": 2, "reply_tokens": 4},
    }
    export(fedse.run(Experiment.model_validate(content), tmp_path).folder, "mine")
    model = Nano(device="cpu", threads=1)
    load_adapter(model.network, read_adapter(AFTER))
    ids = torch.tensor([model.chat.opening("rules") + model.chat.turn("goal 4,3; you 2,1; open: up, down")])
    base = AutoModelForCausalLM.from_pretrained("mine/base")
    assert AutoTokenizer.from_pretrained("mine/base").chat_template == model.tokenizer.chat_template
    with torch.no_grad():
        ours, untrained = model.network(ids).logits, base(ids).logits
        for theirs in (AutoPeftModelForCausalLM.from_pretrained("mine"), PeftModel.from_pretrained(base, "mine")):
            torch.testing.assert_close(theirs(ids).logits, ours, atol=1e-5, rtol=0)
    assert (ours - untrained).abs().max() > 0.1
