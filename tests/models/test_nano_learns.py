"""What nano gains by its own successes has no cheaper explanation: the probes of `scripts/probe_nano.py`, in small.

`nano_after` is the adapter that `fedse run recipes/nano.yaml` ends with; `docs/results/nano_probes.json` holds the probes'
numbers on more tasks.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedse.seeds import generator

pytest.importorskip("peft")

ROOT = Path(__file__).parents[2]
TASKS = 20
"""Of each of the four worlds."""


@pytest.fixture(scope="module")
def probes() -> Any:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import probe_nano
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return probe_nano


@pytest.fixture(scope="module")
def subject(probes: Any) -> Any:
    """A run's parts as the probes see them, without the run."""
    from fedse.adapters.files import read_adapter
    from fedse.experiments.components import build_components
    from fedse.experiments.options import load_experiment

    experiment = load_experiment(ROOT / "recipes" / "nano.yaml", ["model.threads=1"])
    found = probes.Subject.__new__(probes.Subject)
    parts = build_components(experiment)
    makers = {label: make for makers in parts.worlds.values() for label, make in makers.items()}
    vars(found).update(
        experiment=experiment,
        parts=parts,
        model=parts.model,
        before=parts.model.initial_adapter(experiment.seed),
        after=read_adapter(Path(__file__).parent / "nano_after"),
        makers=makers,
        folder=SimpleNamespace(),
    )
    return found


@pytest.fixture(scope="module")
def gain(probes: Any, subject: Any) -> tuple[float, float]:
    before, after = (
        probes.mean(subject.success(subject.policy(adapter), "test", TASKS))
        for adapter in (subject.before, subject.after)
    )
    return before, after - before


def recorded() -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = json.loads((ROOT / "docs/results/nano_probes.json").read_text())["rows"]
    return rows


def test_the_recorded_probes_are_of_the_weights_that_ship(probes: Any) -> None:
    assert json.loads((ROOT / "docs/results/nano_probes.json").read_text())["weights"] == probes.weights_digest()


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, *(pytest.param(place, marks=pytest.mark.torture) for place in (1, 2))])
def test_it_gains_and_ends_above_its_player_and_no_opening_of_its_replies_does_the_same(
    probes: Any, subject: Any, gain: tuple[float, float], place: int
) -> None:
    before, gained = gain
    assert gained > 0.15
    said = [name.removeprefix("every reply begins with ") for name in recorded() if name.startswith("every reply")]
    assert len(said) == 3
    ids = subject.model.chat.reply(ast.literal_eval(said[place]))[:-1]
    opened = probes.ForcedOpening(subject.policy(subject.before), ids)
    assert probes.mean(subject.success(opened, "test", TASKS)) - before <= gained / 4
    # Beside the rest, because what it gains takes half a minute to find out.
    for name, shares in probes.player(subject, TASKS).items():
        assert before + gained > probes.mean(shares), f"it ends below the player it was pre-trained on: {name}"


@pytest.mark.torture
def test_its_likeliest_decisions_become_better(probes: Any, subject: Any) -> None:
    before, after = probes.decisions(subject, 2 * TASKS).values()
    assert probes.mean(after) - probes.mean(before) > 0.15
    for world in subject.makers:
        assert after[world] > before[world] + 0.05, world


@pytest.mark.slow
@pytest.mark.parametrize("world", ["maze", "textcraft", "babyai", "webshop"])
def test_mistakes_are_likelier_than_the_right_action_and_never_equal_to_it(
    probes: Any, subject: Any, world: str
) -> None:
    from nano_player import LEAST, MOST, play, situation

    made, kinds = subject.makers[world](), set()

    def look(said: list[str]) -> None:
        right = made.expert()[1]
        prone = situation(made, said[::2], right)
        if prone is not None:
            kinds.add(prone.kind)
            assert LEAST <= prone.right_share <= MOST < 0.5 and prone.wrong != right

    for task in made.tasks("train")[:60]:
        play(made, task.id, generator(task.id).random, look)
    assert len(kinds) == 3
