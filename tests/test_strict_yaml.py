"""No file that fedse reads can end the machine, whatever stands in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.apps.hub_folder import HubFolder
from fedse.apps.site_file import load_site
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.storage import strict_yaml
from fedse.storage.strict_yaml import DEEPEST, LARGEST, read_yaml
from fedse.sweeps.grid import cells, read_sweep

PLAIN = "name: e\nmodel: table\npolicy: table\nclients: {a: {worlds: [maze]}}\n"
TENFOLD = ", ".join(["*{0}"] * 10)
BOMBS = {
    "lists": "".join(f"x{n}: &x{n} [{TENFOLD.format(f'x{n - 1}')}]\n" if n else "x0: &x0 [1]\n" for n in range(9)),
    "maps": "".join(
        f"x{n}: &x{n} {{{', '.join(f'k{k}: *x{n - 1}' for k in range(10))}}}\n" if n else "x0: &x0 {a: 1}\n"
        for n in range(9)
    ),
    "merges": "".join(
        f"x{n}: &x{n} {{<<: [{TENFOLD.format(f'x{n - 1}')}]}}\n" if n else "x0: &x0 {a: 1}\n" for n in range(9)
    ),
    "itself": "x: &x [*x]\n",
    "itself by merging": "x: &x {<<: *x}\n",
    "nesting": "x: " + "[" * 5000 + "]" * 5000 + "\n",
    "nesting in blocks": "".join(" " * n + "x:\n" for n in range(DEEPEST + 5)),
    "many values": "x: [" + "1," * 5_000 + "]\n",
    "many bytes": "x: '" + "y" * 4_100_000 + "'\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_before_it_goes_off(bomb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if bomb == "many values":  # Reading as many as are allowed takes a while.
        monkeypatch.setattr(strict_yaml, "MOST_VALUES", 4_000)
    file = tmp_path / "e.yaml"
    file.write_text(PLAIN + BOMBS[bomb])
    # One that goes off ends in the time limit of every test, or without memory.
    with pytest.raises(BadInput) as told:
        fedse.load_experiment(file)
    assert "e.yaml" in str(told.value) and len(str(told.value)) < 400


@pytest.mark.parametrize(
    "reads", [load_site, read_sweep, lambda path: HubFolder.existing(path.parent)], ids=["site", "sweep", "hub"]
)
def test_every_file_goes_through_the_same_reader(reads: Callable[[Path], Any], tmp_path: Path) -> None:
    file = tmp_path / "hub.yaml"
    file.write_text(BOMBS["maps"])
    with pytest.raises(BadInput, match="with its aliases it holds more than"):
        reads(file)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("learner: {name: imitation, learning_rate: .inf}", "is not a finite number"),
        ("exploration: {temperature: .inf}", "is not a finite number"),
        ("exploration: {temperature: 1e999}", "is not a finite number"),
        ("exploration: {temperature: .nan}", "is not a finite number"),
        (f"rounds: {'9' * 20_000}", "too large"),
        (f"rounds: 0x{'f' * 20_000}", "too large"),
        (f"rounds: {LARGEST}", "too large"),
    ],
)
def test_a_number_is_finite_and_of_a_sensible_size(line: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(PLAIN + line + "\n")
    with pytest.raises(BadInput, match=rf"line 5: not valid YAML \(.*{told}") as error:
        fedse.load_experiment(tmp_path / "e.yaml")
    assert len(str(error.value)) < 400
    (tmp_path / "e.yaml").write_text(PLAIN)
    key, _, value = line.partition(": ")
    with pytest.raises(BadInput, match=told[:20]):
        fedse.load_experiment(tmp_path / "e.yaml", [f"{key}={value}"])


def test_options_in_python_are_finite_too(table_experiment: Callable[..., Experiment]) -> None:
    with pytest.raises(BadInput, match="finite"):
        table_experiment(exploration={"temperature": float("inf")})


@pytest.mark.parametrize("name", ["m" * 300, "m" * 300 + ":Model", "a:" + "M" * 300, "m\0n", "m" * 100_000])
def test_a_model_with_a_very_long_name_is_a_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(PLAIN.replace("model: table", f'model: "{name}"'.replace("\0", "\\0")))
    with pytest.raises(BadInput, match=r"line 2: model: ") as told:
        fedse.load_experiment(tmp_path / "e.yaml")
    assert len(str(told.value)) < 1000


@pytest.mark.slow
def test_ten_thousand_unknown_keys_are_told_in_a_few_lines(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(PLAIN + "".join(f"{'k' * 200}{n}: 1\n" for n in range(10_000)))
    with pytest.raises(BadInput, match=r"\.\.\. and 9,990 more problems\.") as told:
        fedse.load_experiment(tmp_path / "e.yaml")
    assert len(str(told.value).splitlines()) == 11 and len(str(told.value)) < 10_000


@pytest.mark.slow
def test_a_thousand_clients_are_no_bomb(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    many = table_experiment(clients={f"site-{n}": {"worlds": ["maze"]} for n in range(1000)})
    (tmp_path / "e.yaml").write_text(many.to_yaml())
    assert len(read_yaml(tmp_path / "e.yaml")[0]["clients"]) == 1000


def test_a_sweep_of_a_million_runs_is_refused(tmp_path: Path) -> None:
    values = ", ".join(f"k{n}: [{', '.join(map(str, range(100)))}]" for n in range(3))
    (tmp_path / "s.yaml").write_text(f"name: s\nexperiment: {{name: e}}\nsettings: {{{values}}}\n")
    with pytest.raises(BadInput, match="asks for 1,000,000 runs"):
        cells(*read_sweep(tmp_path / "s.yaml"), tmp_path)
