"""Wordle: find the hidden word. Clean: words of the test are never seen before. Original: a vocabulary of 40 words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedse.errors import BadInput
from fedse.plugins import FilePath
from fedse.seeds import stream, uniform
from fedse.types import SPLITS, Split, Task
from fedse.worlds.hints import at_level
from fedse.worlds.made import change_of, draws, is_made, made_id, not_made
from fedse.worlds.splits import EVALUATION_TASKS, TaskLists, clean_tasks, official_ids
from fedse.worlds.two_modes import TwoModeOptions
from fedse.worlds.wordle.games import (
    CATEGORIES,
    LENGTH,
    Game,
    WordList,
    best_guess,
    category,
    fitting,
    guesses_needed,
    hidden_order,
    listed_game,
    marks,
    word_list,
)
from fedse.worlds.wordle.texts import Narrator
from fedse.worlds.wordle.words import COMMON, ORIGINAL
from fedse.worlds.world import Turn, World

# As many train and test seeds as the official lists have; the original has no validation split.
_ORIGINAL_SEEDS: dict[Split, range] = {
    "train": range(25, 980),
    "validation": range(100_000, 100_000 + EVALUATION_TASKS),
    "test": range(25),
}


class Wordle(World):
    """Guess a word of five letters from a list; every guess is marked letter by letter."""

    name = "wordle"
    version = 1

    class Options(TwoModeOptions):
        CLEAN_ONLY = ("observation_length", "feedback", "spelling", "relist", "words", "candidates", "lookalikes")

        observation_length: Literal["full", "brief"] = "full"
        """Whole sentences each turn, or the bare marks."""
        feedback: Literal["letters", "words"] = "letters"
        """How a guess is marked: with g, y and b, or with the words correct, elsewhere and absent."""
        spelling: Literal["words", "letters"] = "words"
        """Write "crane", or "c r a n e", as original mode does with guesses: many tokenizers hide the letters of words."""
        relist: bool = False
        """List the words again after each guess: a model that reads from left to right then sees them in the light of the
        marks."""
        guesses: int = Field(default=6, ge=2)
        """Guesses per game; one that is not a listed word counts too."""
        letter_counting: bool | None = None
        """Whether repeated letters are counted when marking; empty means yes in clean mode and no in original mode."""
        words: FilePath | None = None
        """File with words of five letters, one per line, in place of the built-in list."""
        candidates: int = Field(default=20, ge=2)
        """Words listed per game, the hidden one among them."""
        lookalikes: float = Field(default=0.0, ge=0, le=1)
        """Share of the other listed words that are chosen for having the hidden word's letters in the same places."""

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._original = self.options.mode == "original"
        counting = self.options.letter_counting
        self._counting = not self._original if counting is None else counting
        self._official = official_ids(self.options.ids) if self.options.ids else {}
        self._narrator = Narrator(
            vocabulary=ORIGINAL if self._original else (),
            rules_length=self.options.rules,
            view_length=self.options.observation_length,
            feedback=self.options.feedback,
            blanks=self._original or self.options.spelling == "letters",
            guesses=self.options.guesses,
            relist=self.options.relist,
        )

    @cached_property
    def rules(self) -> str:
        return self._narrator.rules()

    @property
    def turn_limit(self) -> int:
        return self.options.guesses

    # Tasks

    @cached_property
    def _words(self) -> WordList:
        path = self.options.words
        found = word_list(_read_words(path) if path else COMMON)
        for split, own in found.words.items():
            if len(own) < self.options.candidates:
                raise BadInput(
                    f"wordle: the {split} split has {len(own)} words and each game lists {self.options.candidates}; "
                    "use a longer list of words or lower `candidates`."
                )
        return found

    @cached_property
    def _lists(self) -> TaskLists:
        if self._original:
            seeds = {
                split: self._official.get(split) or [str(seed) for seed in _ORIGINAL_SEEDS[split]] for split in SPLITS
            }
            return TaskLists.of(
                {split: [Task(seed, category(_original_word(seed))) for seed in seeds[split]] for split in SPLITS}
            )
        options, held = self.options, self._words.categories
        categories = {split: [name for name in CATEGORIES if name in held[split]] for split in SPLITS}
        return clean_tasks(options.train_tasks, categories, options.mix, options.mix_seed)

    @property
    def _known(self) -> Mapping[str, Split]:
        return self._lists.split_of

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._lists.tasks[split]

    def subject(self, task: str) -> str:
        """The hidden word."""
        if self._original:
            return _original_word(task)
        if is_made(task):
            return change_of(task)
        _, name, number = task.split("-")
        order = hidden_order(self._words, "train", name, self.options.pool)
        return order[int(number) % len(order)]

    def game(self, task: str) -> Game:
        """The hidden word of a task and the words listed with it."""
        if is_made(task):
            return self._rehidden(task)
        split = self._known.get(task)
        if split is None:
            raise BadInput(f"wordle: there is no task '{task}'; a task of this world is '{self.tasks('test')[0].id}'.")
        if self._original:
            return Game(_original_word(task), ORIGINAL)
        _, name, number = task.split("-")
        options = self.options
        return listed_game(
            self._words,
            split,
            name,
            int(number),
            options.pool if split == "train" else 0,
            options.candidates,
            options.lookalikes,
            options.guesses,
            self._counting,
        )

    # Made tasks: the words of a training game, another of which is hidden. All of them are words of training.

    @property
    def makes_tasks(self) -> bool:
        """In original mode all splits hide the same 40 words."""
        return not self._original

    def vary(self, task: str, seed: int) -> Task | None:
        base, given = self.training_base(task), self.game(task)
        others, drawn = [word for word in given.words if word != given.hidden], draws("wordle", task, seed)
        while others:
            word = others.pop(int(next(drawn) * len(others)))
            if guesses_needed(given.words, word, self._counting) <= self.options.guesses:
                return self.made(made_id(base, word))
        return None

    def achieved(self) -> Task | None:
        """Nothing: were the last guess the hidden word, the guesses before it would not fit the marks they had got."""
        self.training_base(self._task)
        return None

    def made(self, task: str) -> Task:
        return Task(task, category(self._rehidden(task).hidden))

    def _rehidden(self, task: str) -> Game:
        listed, word = self.game(self.training_base(task)).words, change_of(task)
        if word not in listed or guesses_needed(listed, word, self._counting) > self.options.guesses:
            raise not_made(self.name, task)
        return Game(word, listed)

    # Play

    def begin(self, task: str) -> str:
        self._game = self.game(task)
        self._task = task
        self._history: list[tuple[str, str]] = []
        return self._narrator.start(self._game.words)

    def act(self, action: str) -> Turn:
        # Both "crane" and "c r a n e" are taken; the original's spelling has the blanks.
        guess = action.strip().rstrip(".").lower().replace(" ", "")
        left = self.options.guesses - self._turns - 1
        hidden = self._game.hidden
        if guess not in self._game.words:
            return Turn(self._narrator.invalid(left, self._game), valid=False, done=left == 0)
        seen = marks(guess, hidden, self._counting)
        self._history.append((guess, seen))
        if guess == hidden:
            return Turn(self._narrator.solved(guess), done=True, success=True, score=1.0)
        return Turn(self._narrator.marked(guess, seen, left, self._game), done=left == 0)

    def state(self) -> Any:
        return (self._task, tuple(self._history))

    def set_state(self, state: Any) -> None:
        task, history = state
        self.begin(task)
        self._history = [(guess, seen) for guess, seen in history]

    # Policies

    def legal_actions(self) -> list[str]:
        return [self._narrator.spelled(word) for word in self._game.words]

    def trivial(self, draw: float) -> str:
        """Any of the listed words."""
        words = self._game.words
        return self._narrator.spelled(words[int(draw * len(words))])

    def expert(self) -> tuple[str, str]:
        """The word that fits all marks so far and tells most."""
        possible = fitting(self._game.words, self._history, self._counting)
        guess = best_guess(possible, self._counting)
        return self._narrator.thought(guess, possible, first=not self._history), self._narrator.spelled(guess)

    def hint(self, level: int) -> str:
        possible = fitting(self._game.words, self._history, self._counting)
        return at_level(level, self._narrator.advice, self._narrator.aim(possible, self._history), self.expert()[1])

    @property
    def has_hints(self) -> bool:
        return True

    def drawing(self) -> str:
        """The guesses as coloured tiles, and the alphabet with what is known of each letter."""
        return self._narrator.board(self._history, self.options.guesses - self._turns)


def _original_word(seed: str) -> str:
    return ORIGINAL[int(uniform(stream("wordle original", seed), 0) * len(ORIGINAL))]


def _read_words(path: Path) -> tuple[str, ...]:
    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"wordle: the list of words {path} cannot be read: {error}.") from error
    for word in words:
        if len(word) != LENGTH or not (word.isascii() and word.isalpha()):
            raise BadInput(f"wordle: '{word}' in {path} is not a word of {LENGTH} letters a to z.")
    return tuple(dict.fromkeys(word.lower() for word in words))
