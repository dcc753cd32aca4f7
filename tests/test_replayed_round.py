"""`benchmarks/replayed_round.py` plays and learns as many tokens as were recorded, through the loop that every run has."""

from __future__ import annotations

import argparse
import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from fedse.experience.journal import Journal
from fedse.networks.decoding.graphed import GraphedDecoder
from fedse.types import Outcome, Purpose, Trajectory
from networks import plain_kernels

TINY = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
TINY |= {"num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512}
TINY |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SMALL = {
    "here": {"opening": 20, "episodes": [[1, 9, 4, 12, 7], [0, 15, 3, 8, 12, 9, 1], [1, 11, 2]]},
    "there": {"opening": 33, "episodes": [[1, 50, 20], [1, 8, 5, 8, 5, 8, 5], [0, 40, 11, 30, 6]]},
}


@pytest.fixture
def given(benchmarks: Any, tmp_path: Path) -> argparse.Namespace:
    """A tiny network, and a recording of two worlds."""
    shapes = benchmarks("shapes")
    shapes.SHAPES["tiny"] = shapes.Shape("Llama", 0, TINY)
    file = tmp_path / "small.json"
    file.write_text(json.dumps({"made_from": {}, "worlds": SMALL}))
    asked = ["--tasks", "2", "--demonstrations", "4", "--slots", "3", "--shape", "tiny", "--recording", str(file)]
    return benchmarks("replayed_round").settings().parse_args(asked)  # type: ignore[no-any-return]


def stretches(trajectory: Trajectory) -> list[int]:
    return [sum(1 for _ in own) for _, own in groupby(trajectory.train_mask)]


@pytest.mark.parametrize("recorded_steps", [False, True], ids=["packed", "graphed"])
def test_rounds_have_the_turns_and_tokens_of_the_recording(
    given: argparse.Namespace,
    benchmarks: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded_steps: bool,
) -> None:
    if recorded_steps:
        monkeypatch.setattr(
            "fedse.policies.transformer.decoder_for",
            lambda model, slots, *_: GraphedDecoder(model, slots, plain_kernels),
        )
    kept: list[list[str]] = []
    replayed = benchmarks("replayed_round")
    found = replayed.measured(given, lambda so_far: kept.append([one["name"] for one in so_far["stretches"]]), tmp_path)
    assert "error" not in found
    assert found["decoder"] == ("GraphedDecoder" if recorded_steps else "PackedDecoder")
    assert ["beginning", "round 1"] in kept, "what was measured is there before the next round begins"

    recording = benchmarks("recorded_lengths").recorded(given.recording)
    remembered = {name: _tokens(world, _in_turn(world.successes, 4)) for name, world in recording.items()}
    for number, told in enumerate(replayed.rounds_of(found), start=1):
        prefilled = sampled = learned = 0
        for name, world in recording.items():
            folder = tmp_path / "replayed_round/clients" / name / "episodes"
            played = list(Journal(folder).read(f"{number:04d}"))
            as_recorded = [world.episodes[int(item.task.partition("-")[2])] for item in played]
            for item, episode in zip(played, as_recorded, strict=True):
                (first, reply), *others = episode.turns
                assert stretches(item) == [
                    world.opening + first,
                    reply,
                    *(length for turn in others for length in turn),
                ]
                assert (item.outcome is Outcome.SUCCESS) == episode.success
            explored = [item.purpose is Purpose.EXPLORE for item in played]
            assert sum(explored) == 2 and len(explored) == (3 if number == 1 else 2)
            sampled += sum(episode.sampled for episode in as_recorded)
            # The last token of a reply is encoded with the observation after it; the opening once for an adapter.
            prefilled += world.opening + sum(episode.observed + len(episode.turns) - 1 for episode in as_recorded)
            new = [episode for episode, own in zip(as_recorded, explored, strict=True) if own and episode.success]
            remembered[name] += _tokens(world, new)
            learned += 2 * remembered[name]
        counts = told["counts"]
        assert (counts["prefilled"], counts["decoded"], counts["learned"]) == (prefilled, sampled, learned)
    assert learned > 0
    table = replayed.report(found)
    assert f"| tokens learned | 0 | {replayed.rounds_of(found)[0]['counts']['learned']:,} | {learned:,} |" in table


def _in_turn(episodes: list[Any], count: int) -> list[Any]:
    return [episodes[number % len(episodes)] for number in range(count)]


def _tokens(world: Any, episodes: list[Any]) -> int:
    return sum(world.opening + episode.observed + episode.sampled for episode in episodes)


def test_a_run_that_breaks_keeps_what_it_has_and_says_why(
    given: argparse.Namespace, benchmarks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise MemoryError("the card is full")

    monkeypatch.setattr("fedse.learners.imitation.Imitation.learn_together", full)
    replayed = benchmarks("replayed_round")
    kept: list[Any] = []
    found = replayed.measured(given, kept.append, tmp_path)
    assert kept[-1]["error"] == "MemoryError: the card is full"
    assert [one["name"] for one in found["stretches"]] == ["beginning"]
    assert "Ended early: MemoryError: the card is full" in replayed.report(found)


def test_lengths_are_read_off_what_was_drawn(benchmarks: Any, tmp_path: Path) -> None:
    """User 5, end 0, agent 7. The second reply was cut off: its end is written before the next observation."""
    opening, end = [5, 1, 1, 0, 7, 8, 0], 0
    said = [([5, 1, 2, end, 7], [3, 4, end]), ([5, 2, end, 7], [3, 3, 3]), ([end, 5, 2, 2, end, 7], [4, end])]
    ids, mask = list(opening), [False] * len(opening)
    for observation, reply in said:
        ids += [*observation, *reply]
        mask += [*[False] * len(observation), *[True] * len(reply)]
    step = {"observation": "", "reply": "", "thought": "", "action": "", "valid": True}
    record = {"format": 3, "client": "c", "world": "w", "task": "t", "purpose": "explore", "round": 1, "attempt": 0}
    record |= {"adapter": "", "steps": [step] * 3, "closing": "", "outcome": "success", "score": 1.0}
    line = json.dumps({**record, "token_ids": ids, "train_mask": list(map(int, mask))}) + "\n"
    (tmp_path / "0001.jsonl").write_text(line * 2)
    module = benchmarks("recorded_lengths")
    found = module.lengths_of(list(Journal(tmp_path).read("0001")))
    assert found.opening == 7
    assert [episode.turns for episode in found.episodes] == [((5, 3), (4, 3), (6, 2))] * 2
    (tmp_path / "lengths.json").write_text(module.written({"w": found}, {}))
    assert module.recorded(tmp_path / "lengths.json") == {"w": found}


def test_the_shipped_recording_has_the_tokens_that_its_run_counted(benchmarks: Any) -> None:
    """Prefilled and sampled on the test tasks of each world, by the events of the run."""
    counted = {"babyai": (91_214, 52_262), "maze": (51_886, 41_699), "textcraft": (48_536, 49_240)}
    counted |= {"webshop": (68_623, 26_924), "wordle": (28_953, 19_690)}
    file = benchmarks("recorded_lengths").SMOLLM2
    found = {}
    for name, world in benchmarks("recorded_lengths").recorded(file).items():
        assert len(world.episodes) == 200
        read = sum(episode.observed + len(episode.turns) - 1 for episode in world.episodes)
        found[name] = world.opening + read, sum(episode.sampled for episode in world.episodes)
        replayed = benchmarks("replayed_world").ReplayedWorld(recording=file, of=name)
        for task, episode in zip(replayed.tasks("train"), world.episodes, strict=True):
            said, _ = replayed.reset(options={"task": task.id})
            lengths = [len(said) + 3]
            over = False
            while not over:
                said, _, over, _, info = replayed.step("")
                lengths.append(len(said) + 4)
            assert lengths[:-1] == [observation for observation, _ in episode.turns]
            assert info["success"] == episode.success
    assert found == counted


def test_twenty_rounds_are_estimated_from_the_last(benchmarks: Any) -> None:
    first = {"name": "round 1", "seconds": 90.0, "spans": {"recording": 30.0}, "counts": {"learned": 1, "episodes": 7}}
    spans = {"learning": 2.0, "loss and backward": 7.0, "optimiser": 1.0, "recording": 5.0, "decode": 20.0}
    last = {"name": "round 2", "seconds": 35.0, "spans": spans, "counts": {"learned": 100_000, "episodes": 7}}
    told = benchmarks("replayed_round").estimate({"stretches": [first, last]})
    # 10,000 tokens per second; 20 s a round for everything else; 35 s of recording in all.
    assert "20 x 20.0 + 28,500,000 / 10,000 + 35.0 for recording = 3,285 s, 0.91 hours" in told
    assert "Too long" not in told
    assert "Too long: the first round" in benchmarks("replayed_round").estimate({"stretches": [last]})


def test_any_key_of_the_experiment_can_be_changed(given: argparse.Namespace, benchmarks: Any) -> None:
    given.set = ["learner.tokens_at_once=512", "evaluation.tasks=2", "evaluation.tasks_per_round=2"]
    made = benchmarks("replayed_round").experiment(given)
    assert made.learner.options["tokens_at_once"] == 512 and made.learner.options["batch_size"] == 8
    assert made.evaluation.tasks == made.evaluation.tasks_per_round == 2


def test_memory_counts_for_the_span_that_had_it(benchmarks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = benchmarks("memory_watch")
    seen = iter([1.0, 5.0, 9.0, 2.0])
    monkeypatch.setattr(module, "seen", lambda: {"allocated": next(seen)})
    # The stopwatch is made; a second of `rest`, one of `decode`; nothing; one of `loss`; one of `rest`.
    watch = module.MemoryWatch(clock=iter([0.0, 1.0, 2.0, 2.0, 3.0, 4.0]).__next__)
    for name in ("decode", "loss"):
        with watch.span(name, whole=False):
            pass
    watch.cut()
    assert watch.cut_memory() == {
        "rest": {"allocated": 2.0},
        "decode": {"allocated": 5.0},
        "loss": {"allocated": 9.0},
    }
    assert watch.cut_memory() == {}
