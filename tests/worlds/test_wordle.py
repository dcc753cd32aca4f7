"""The Wordle world: marks, vocabulary, splits, texts and every knob."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from statistics import mean

import pytest

from fedse.errors import BadInput
from fedse.types import SPLITS
from fedse.worlds.check import check
from fedse.worlds.reference import ceiling, floor
from fedse.worlds.wordle import Wordle
from fedse.worlds.wordle.games import guesses_needed, marks
from fedse.worlds.wordle.words import COMMON, ORIGINAL


def begin(world: Wordle, task: str) -> str:
    return world.reset(options={"task": task})[0]


@pytest.mark.parametrize(
    ("guess", "hidden", "counted", "uncounted"),
    [
        ("crane", "crane", "ggggg", "ggggg"),
        ("those", "shire", "bgbyg", "bgbyg"),
        ("skill", "light", "bbyyb", "bbyyy"),
        ("robot", "aroma", "yybbb", "yybyb"),
        ("eerie", "sheep", "yybbb", "yybby"),
        ("geese", "eerie", "bgybg", "bgybg"),
    ],
)
def test_marks(guess: str, hidden: str, counted: str, uncounted: str) -> None:
    assert marks(guess, hidden, letter_counting=True) == counted
    assert marks(guess, hidden, letter_counting=False) == uncounted


def test_the_original_vocabulary_has_the_published_numbers() -> None:
    assert len(set(ORIGINAL)) == 40
    assert sum(len(set(word)) < 5 for word in ORIGINAL) == 9
    pairs = [(guess, hidden) for guess in ORIGINAL for hidden in ORIGINAL]
    assert sum(marks(*pair, letter_counting=True) != marks(*pair, letter_counting=False) for pair in pairs) == 92


def test_the_built_in_words_are_sound() -> None:
    assert len(COMMON) == len(set(COMMON)) >= 600
    assert all(len(word) == 5 and word.isascii() and word.isalpha() and word.islower() for word in COMMON)
    assert list(COMMON) == sorted(COMMON)


def test_original_speaks_like_the_original() -> None:
    world = Wordle(mode="original")
    assert all(word in world.rules for word in ORIGINAL)
    assert begin(world, "0") == "Let's start Wordle!"
    hidden = world.game("0").hidden
    wrong = next(word for word in ORIGINAL if word != hidden)
    observation, _, _, _, info = world.step(" ".join(wrong))
    assert observation == " ".join(marks(wrong, hidden, letter_counting=False))
    assert world.step("crane")[0] == "invalid word"
    observation, reward, terminated, _, info = world.step(" ".join(hidden))
    assert (observation, reward, terminated, info["success"]) == ("g g g g g", 1.0, True, True)
    assert len({world.game(task.id).hidden for task in world.tasks("train")}) == 40


def test_invalid_guesses_count() -> None:
    world = Wordle(guesses=3)
    begin(world, "test-early-0")
    assert "You have 2 guesses left." in world.step("")[0]
    assert "You have 1 guess left." in world.step("dance wildly")[0]
    observation, _, terminated, truncated, info = world.step("zzzzz")
    assert (terminated, truncated, info["success"]) == (True, False, False)
    assert world.game("test-early-0").hidden in observation


def test_floors_and_ceilings() -> None:
    original = Wordle(mode="original")
    assert floor(original, original.tasks("validation"), repeats=10) == pytest.approx(1 - (39 / 40) ** 6, abs=0.03)
    assert max(guesses_needed(ORIGINAL, word, letter_counting=False) for word in ORIGINAL) <= 6
    clean = Wordle()
    assert floor(clean, clean.tasks("test"), repeats=10) == pytest.approx(1 - (19 / 20) ** 6, abs=0.04)
    assert all(ceiling(clean, clean.tasks(split)) == 1 for split in SPLITS)


@pytest.mark.slow
def test_splits_share_no_word_even_between_clients() -> None:
    one, other = Wordle(), Wordle(pool=3, mix=0.5, mix_seed=9, lookalikes=0.5)
    listed = {
        split: {word for world in (one, other) for task in world.tasks(split) for word in world.game(task.id).words}
        for split in SPLITS
    }
    assert all(len(one.tasks(split)) >= 200 for split in SPLITS)
    assert not listed["train"] & listed["test"]
    assert not listed["train"] & listed["validation"]
    assert not listed["validation"] & listed["test"]
    for split in SPLITS:
        assert all(one.game(task.id).hidden in one.game(task.id).words for task in one.tasks(split))


def test_a_task_id_means_the_same_game_everywhere() -> None:
    game = Wordle(rules="brief", candidates=12, pool=5, mix=0.1).game("test-late-7")
    # Written down once: a change here changes every published number, so `version` must rise with it.
    assert (game.hidden, game.words) == PINNED_GAME


PINNED_GAME = (
    "wrong",
    ("blend", "break", "cocoa", "dozen", "honey", "outer", "panel", "sixty", "sleet", "spend", "swing", "wrong"),
)


def test_candidates_lookalikes_and_guesses_change_the_game() -> None:
    assert len(Wordle(candidates=25).game("test-early-0").words) == 25

    def likeness(world: Wordle) -> float:
        games = [world.game(task.id) for task in world.tasks("test")[:60]]
        return mean(
            sum(a == b for a, b in zip(word, game.hidden, strict=True)) for game in games for word in game.words
        )

    assert likeness(Wordle(lookalikes=1)) > likeness(Wordle(lookalikes=0.5)) > likeness(Wordle()) + 0.2
    hard = Wordle(lookalikes=1, guesses=3)
    assert ceiling(hard, hard.tasks("test")) == 1


def test_a_list_that_nobody_could_solve_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("\n".join(f"zzz{one}{two}" for one in "abcdefghijkl" for two in "mnopqrstuvwx"))
    world = Wordle(words=file, candidates=14, guesses=2)
    with pytest.raises(BadInput, match="can be solved in 2 guesses"):
        for task in world.tasks("validation"):
            world.game(task.id)


def test_mix_pool_and_size_change_the_training_tasks_only() -> None:
    even, skewed, other = Wordle(), Wordle(mix=0.3, mix_seed=1), Wordle(mix=0.3, mix_seed=2)
    counts = [Counter(task.category for task in world.tasks("train")) for world in (even, skewed, other)]
    assert counts[0] == {"early": 200, "middle": 200, "late": 200}
    assert len({tuple(sorted(count.items())) for count in counts}) == 3
    assert even.tasks("test") == skewed.tasks("test")
    assert len(Wordle(train_tasks=30).tasks("train")) == 30
    hidden = [[Wordle(pool=pool).game(f"train-late-{n}").hidden for n in range(20)] for pool in (0, 1)]
    assert hidden[0] != hidden[1]
    assert Wordle(pool=1).game("test-late-1") == even.game("test-late-1")


def test_wording_knobs() -> None:
    brief = Wordle(rules="brief", observation_length="brief")
    assert len(brief.rules) <= 320 < len(Wordle().rules)
    assert begin(brief, "test-early-0").startswith("words: ")
    wrong = next(word for word in brief.game("test-early-0").words if word != brief.game("test-early-0").hidden)
    letters = brief.step(wrong)[0]
    assert letters.startswith(f"{wrong}: ")
    assert set(letters.removeprefix(f"{wrong}: ")) <= set("gyb ")
    words = Wordle(rules="brief", observation_length="brief", feedback="words")
    begin(words, "test-early-0")
    told = words.step(wrong)[0]
    assert {part.split()[1] for part in told.split(", ")} <= {"correct", "elsewhere", "absent"}
    assert "correct = " in words.rules
    full = Wordle()
    assert begin(full, "test-early-0").startswith("A new game.")
    assert full.step(wrong)[0] == f"{letters}. You have 5 guesses left."


def test_letter_counting_can_be_switched() -> None:
    plain, counted = Wordle(mode="original"), Wordle(mode="original", letter_counting=True)
    task = next(task.id for task in plain.tasks("train") if plain.game(task.id).hidden == "light")
    answers = []
    for world in (plain, counted):
        begin(world, task)
        answers.append(world.step("s k i l l")[0])
    assert answers == ["b b y y y", "b b y y b"]


def test_the_experts_guess_fits_and_is_named_in_the_thought() -> None:
    for length in ("full", "brief"):
        world = Wordle(rules=length)
        for task in world.tasks("train")[:60]:
            begin(world, task.id)
            over = False
            while not over:
                thought, action = world.expert()
                assert action in thought
                assert len(thought) <= (60 if length == "brief" else 110)
                over = world.step(action)[2]


@pytest.mark.slow
def test_words_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("\n".join(word.upper() for word in COMMON[::4]))
    world = Wordle(words=file)
    assert {word for task in world.tasks("train") for word in world.game(task.id).words} <= set(COMMON[::4])
    assert ceiling(world, world.tasks("test")[:30]) == 1
    file.write_text("crane\nfour\n")
    with pytest.raises(BadInput, match="'four'"):
        Wordle(words=file).tasks("train")
    file.write_text("crane\nslate\n")
    with pytest.raises(BadInput, match="use a longer list"):
        Wordle(words=file).tasks("train")
    with pytest.raises(BadInput, match="cannot be read"):
        Wordle(words=tmp_path / "absent.txt").tasks("train")


def test_options_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for wrong in ({"mode": "original", "candidates": 5}, {"ids": "ids.json"}, {"guesses": 1}, {"lookalikes": 2}):
        with pytest.raises(BadInput):
            Wordle(**wrong)
    with pytest.raises(BadInput, match="there is no task 'crane'"):
        begin(Wordle(), "crane")


def test_official_ids(tmp_path: Path) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text('{"train": [1009, 3], "test": [3]}')
    world = Wordle(mode="original", ids=ids)
    assert [[task.id for task in world.tasks(split)] for split in ("train", "test")] == [["1009", "3"], ["3"]]
    assert world.game("1009").hidden in ORIGINAL


def test_the_official_file() -> None:
    folder = os.environ.get("FEDSE_DATA")
    if not folder:
        pytest.skip("FEDSE_DATA does not name the folder with the official ids")
    world = Wordle(mode="original", ids=Path(folder) / "official_ids" / "wordle.json")
    train, test = ({task.id for task in world.tasks(split)} for split in ("train", "test"))
    assert (len(train), len(test), len(train & test)) == (955, 25, 21)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"rules": "brief", "observation_length": "brief", "feedback": "words"}, {"mode": "original"}]
)
def test_the_checker_passes(options: dict[str, str]) -> None:
    assert [finding for finding in check(lambda: Wordle(**options)) if not finding.passed] == []


def test_words_can_be_spelled_letter_by_letter_everywhere() -> None:
    world = Wordle(spelling="letters", rules="brief", observation_length="brief", candidates=5, guesses=2)
    plain = Wordle(rules="brief", observation_length="brief", candidates=5, guesses=2)
    task = world.tasks("train")[0].id
    seen, _ = world.reset(options={"task": task})
    whole, _ = plain.reset(options={"task": task})
    words = whole.removeprefix("words: ").split(", ")
    assert seen == "words: " + ", ".join(" ".join(word) for word in words)
    assert "like s h i r e" in world.rules
    thought, action = world.expert()
    assert action in seen
    assert action in thought
    wrong = next(word for word in words if word != world.game(task).hidden)
    told, *_ = world.step(" ".join(wrong))
    assert told.startswith(" ".join(wrong) + ": ")
    missed, _, _, _, info = world.step("none of them")
    assert not info["valid"]
    assert " ".join(world.game(task).hidden) in missed


@pytest.mark.parametrize("length", ["brief", "full"])
def test_the_words_can_be_listed_again_after_each_guess(length: str) -> None:
    listing = Wordle(relist=True, observation_length=length, candidates=5, guesses=3)
    plain = Wordle(observation_length=length, candidates=5, guesses=3)
    task = listing.tasks("train")[0].id
    first, _ = listing.reset(options={"task": task})
    assert plain.reset(options={"task": task})[0] == first
    hidden = listing.game(task).hidden
    wrong = next(word for word in listing.game(task).words if word != hidden)
    again = f"\nwords: {', '.join(listing.game(task).words)}"
    for guess in (wrong, "zzzzz"):
        assert listing.step(guess)[0] == plain.step(guess)[0] + again
    # Nothing is left to choose.
    assert listing.step(wrong)[0] == plain.step(wrong)[0]
