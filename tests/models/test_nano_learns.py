"""What nano gains by its own successes has no cheaper explanation: the probes of `scripts/probe_nano.py`, in small.

`nano_after` is the adapter that `fedse run recipes/nano.yaml` ends with; `docs/results/nano_probes.json` holds the probes'
numbers on more tasks.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedse.plugins import resolve
from fedse.seeds import generator

pytest.importorskip("peft")

ROOT = Path(__file__).parents[2]
TASKS = 16
"""Of each of the four worlds."""


def script(name: str) -> Any:
    """A file in `scripts/`, with those beside it that it imports."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def probes() -> Any:
    return script("probe_nano")


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


def recorded() -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = json.loads((ROOT / "docs/results/nano_probes.json").read_text())["rows"]
    return rows


def test_the_recorded_probes_are_of_the_weights_that_ship(probes: Any) -> None:
    assert json.loads((ROOT / "docs/results/nano_probes.json").read_text())["weights"] == probes.weights_digest()


def test_the_recorded_probes_explain_no_more_of_the_gain_than_was_aimed_for(probes: Any) -> None:
    """Eight successes explain more, and BabyAI's decisions gain less: docs/models.md says by how much."""
    rows = recorded()
    shares = {name: probes.mean(row) for name, row in rows.items()}
    gained = shares["after"] - shares["before"]
    aims = {"every reply begins": 3, "temperature": 4, "most frequent": 1, "ten optimiser steps": 1}
    for begins, parts, count in (
        *((name, 4, count) for name, count in aims.items()),
        ("soft prompt", 2, 2),
        ("one bias", 2, 2),
    ):
        found = [share for name, share in shares.items() if name.startswith(begins)]
        assert len(found) == count, begins
        assert max(found) - shares["before"] <= gained / parts, begins
    assert shares["after"] > max(shares["the imperfect player"], shares["its likeliest actions"])
    for world in ("maze", "textcraft", "webshop"):
        assert rows["optimal decisions, after"][world] >= rows["optimal decisions, before"][world] + 0.15, world


@pytest.mark.slow
def test_it_gains_and_ends_above_its_player_and_neither_openings_nor_sampling_do_the_same(
    probes: Any, subject: Any
) -> None:
    """In one test, because what it gains takes a while to find out."""
    before, after = (
        probes.mean(subject.success(subject.policy(adapter), "test", TASKS))
        for adapter in (subject.before, subject.after)
    )
    assert after - before > 0.15
    untrained = subject.policy(subject.before)
    said = [name.removeprefix("every reply begins with ") for name in recorded() if name.startswith("every reply")]
    openings = [subject.model.chat.reply(ast.literal_eval(text))[:-1] for text in said]
    tried = {
        **{text: (probes.ForcedOpening(untrained, ids), 0.0) for text, ids in zip(said, openings, strict=True)},
        "temperature 1": (untrained, 1.0),
    }
    assert len(tried) == 4
    for name, (policy, heat) in tried.items():
        found = probes.mean(subject.success(policy, "test", TASKS, heat))
        assert found - before <= (after - before) / 4, name
    for name, shares in probes.player(subject, TASKS).items():
        assert after > probes.mean(shares), f"it ends below the player it was pre-trained on: {name}"


@pytest.mark.torture
def test_its_likeliest_decisions_become_better(probes: Any, subject: Any) -> None:
    before, after = probes.decisions(subject, 60).values()
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


@pytest.mark.slow
def test_no_conversation_of_the_corpus_is_the_solution_of_a_held_out_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Maze, where other maps read alike; a few of so many conversations would be."""
    play, corpus = script("nano_player").play, script("pretrain_nano")
    monkeypatch.setitem(corpus.TASKS, "maze", 1000)
    monkeypatch.setitem(corpus.EPISODES, "maze", 1500)
    conversations = corpus.conversations_in("maze")
    assert "maze: 0 tasks left out" not in capsys.readouterr().out
    world = resolve("world", "maze")(**corpus.WORLDS["maze"])
    solutions = {
        tuple(play(world, task.id, lambda: 0.0)[0]) for split in ("validation", "test") for task in world.tasks(split)
    }
    assert len(conversations) > 1400
    assert not solutions & {tuple(said) for _, *said in conversations}
