"""Everything the Wordle world says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedse.worlds.reply_form import RulesLength, asked_for, asked_for_briefly
from fedse.worlds.wordle.games import Game

_MARK_WORDS = {"g": "correct", "y": "elsewhere", "b": "absent"}
_TILES = {"g": "\x1b[1;30;42m", "y": "\x1b[1;30;43m", "b": "\x1b[1;37;100m", "": "\x1b[37m"}
_OFF = "\x1b[0m"
_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


@dataclass(frozen=True)
class Narrator:
    """The texts for one choice of options."""

    vocabulary: tuple[str, ...]
    """The original's words, which its rules list; empty in clean mode, where each game lists its own."""
    rules_length: RulesLength
    view_length: Literal["full", "brief"]
    feedback: Literal["letters", "words"]
    blanks: bool
    """Whether words are written letter by letter."""
    guesses: int
    relist: bool
    """Whether the words are listed again after each guess."""

    def spelled(self, word: str) -> str:
        """A word as it stands in observations, thoughts and actions."""
        return " ".join(word) if self.blanks else word

    def start(self, words: Sequence[str]) -> str:
        if self.vocabulary:
            return "Let's start Wordle!"
        if self.view_length == "brief":
            return f"words: {self._listed(words)}"
        return f"A new game. The hidden word is one of these {len(words)} words: {self._listed(words)}."

    def _listed(self, words: Sequence[str]) -> str:
        return ", ".join(self.spelled(word) for word in words)

    def marked(self, guess: str, marks: str, left: int, game: Game) -> str:
        if self.vocabulary:
            return " ".join(marks)
        if self.feedback == "letters":
            told = f"{self.spelled(guess)}: {' '.join(marks)}"
        else:
            told = ", ".join(f"{letter} {_MARK_WORDS[mark]}" for letter, mark in zip(guess, marks, strict=True))
            told = told if self.view_length == "brief" else f"{self.spelled(guess)}: {told}"
        if left == 0:
            return f"{told}. {self._lost(game.hidden)}"
        return self._with_words(told if self.view_length == "brief" else f"{told}. {self._remaining(left)}", game)

    def invalid(self, left: int, game: Game) -> str:
        if self.vocabulary:
            return "invalid word"
        if left == 0:
            return f"Not a listed word. {self._lost(game.hidden)}"
        if self.view_length == "brief":
            return self._with_words("Not a listed word.", game)
        told = f"That is not one of the listed words, and it counts as a guess. {self._remaining(left)}"
        return self._with_words(told, game)

    def _with_words(self, told: str, game: Game) -> str:
        return f"{told}\nwords: {self._listed(game.words)}" if self.relist else told

    def solved(self, word: str) -> str:
        if self.vocabulary:
            return "g g g g g"
        return "Correct!" if self.view_length == "brief" else f'Correct: the hidden word is "{self.spelled(word)}".'

    def _lost(self, hidden: str) -> str:
        return f"No guesses left. The hidden word was {self.spelled(hidden)}."

    def _remaining(self, left: int) -> str:
        return "You have 1 guess left." if left == 1 else f"You have {left} guesses left."

    def thought(self, word: str, possible: Sequence[str], first: bool) -> str:
        """Why to guess this word, told from the list and the marks so far."""
        if self.rules_length == "bare":
            return ""
        guess = word if self.vocabulary else self.spelled(word)
        brief = self.rules_length == "brief"
        if first:
            if brief:
                return f"Nothing known yet, start with {guess}."
            return f'I know nothing yet. The letters of "{guess}" tell the listed words apart well.'
        if len(possible) == 1:
            return f"Only {guess} fits." if brief else f'Only "{guess}" fits all the marks so far.'
        if len(possible) <= 3:
            *others, last = possible if self.vocabulary else [self.spelled(name) for name in possible]
            names = " and ".join([", ".join(others), last])
            return (
                f"{names} fit, try {guess}." if brief else f'The words {names} fit all the marks, so I try "{guess}".'
            )
        if brief:
            return f"{len(possible)} words fit, try {guess}."
        return f'{len(possible)} words still fit all the marks. Of these "{guess}" tells most.'

    # Hints

    advice = "Guess only words from the list, and of these only ones that fit the marks of every guess so far."

    def aim(self, possible: Sequence[str], history: Sequence[tuple[str, str]]) -> str:
        """The words that are left."""
        if not history:
            return "Every word of the list is possible. Begin with one whose letters many other words have too."
        return f"The words that fit all marks so far: {self._listed(possible)}."

    # Rules

    def rules(self) -> str:
        return self._full_rules() if self.rules_length == "full" else self._brief_rules()

    def _meaning(self) -> str:
        if self.feedback == "letters":
            return "g = right place, y = elsewhere in the word, b = not in the word"
        return "correct = right place, elsewhere = in the word at another place, absent = not in the word"

    def _brief_rules(self) -> str:
        if self.vocabulary:
            where = f"It is one of: {', '.join(self.vocabulary)}."
        else:
            where = "It is one of the listed words, and so must be your guesses."
        if self.blanks:
            where += " Write a guess with blanks, like s h i r e."
        return (
            f"Find the hidden word in {self.guesses} guesses. {where} "
            f"Each letter of a guess is marked: {self._meaning()}.\n"
            f"Answer with one guess per turn, in {asked_for_briefly(self.rules_length, 'word')}"
        )

    def _full_rules(self) -> str:
        if self.vocabulary:
            where = (
                f"The hidden word is one of these {len(self.vocabulary)} words, and only they are accepted as guesses:\n"
                f"{', '.join(self.vocabulary)}\n"
                'Write a guess as five letters with blanks between them, like "s h i r e". '
                'Anything else is answered with "invalid word" and counts as a guess.'
            )
        else:
            where = (
                "At the start of a game you are given a short list of words. The hidden word is one of them, and only "
                "they are accepted as guesses. Anything else counts as a guess and tells you nothing."
            )
            if self.blanks:
                where += ' Write a guess as five letters with blanks between them, like "s h i r e".'
        return (
            "You are an expert at Wordle. Find a hidden word of five letters. "
            f"You have {self.guesses} guesses and should use as few of them as you can.\n{where}\n"
            f"After each guess every one of its letters is marked: {self._meaning()}.\n\n{self._worked_game()}\n\n"
            "Give exactly one guess per turn, in this form:\n"
            + asked_for("what you conclude from the marks so far", "the word you guess")
        )

    def _worked_game(self) -> str:
        """One marked guess and what follows from it."""
        guess, possible, impossible = (self.spelled(word) for word in ("shire", "those", "shake"))
        told = "y g b b g" if self.feedback == "letters" else "s elsewhere, h correct, i absent, r absent, e correct"
        return (
            f'For example, the guess "{guess}" may be marked "{told}". Then h is the second letter and e the last, the '
            "word has an s but does not begin with it, and it has no i and no r. "
            f'So "{possible}" can be the hidden word, while "{impossible}" cannot, since it begins with s.'
        )

    def board(self, history: Sequence[tuple[str, str]], left: int) -> str:
        """The guesses as tiles, the guesses left as empty tiles, and a keyboard."""
        rows = [
            " ".join(f"{_TILES[mark]} {letter.upper()} {_OFF}" for letter, mark in zip(guess, marks, strict=True))
            for guess, marks in history
        ]
        rows += [" ".join(["\x1b[90m ▢ \x1b[0m"] * 5)] * (0 if history and history[-1][1] == "ggggg" else left)
        known: dict[str, str] = {}
        for guess, marks in history:
            for letter, mark in zip(guess, marks, strict=True):
                # A letter once known to be right stays so.
                known[letter] = min(known.get(letter, "z"), mark, key="gybz".index)
        keys = [
            "  " * indent + " ".join(f"{_TILES[known.get(key, '')]}{key}{_OFF}" for key in line)
            for indent, line in enumerate(_KEYBOARD)
        ]
        return "\n".join([*rows, "", *keys])
