"""Any single-player game of TextArena."""

from __future__ import annotations

import importlib
import re
from functools import cached_property
from types import ModuleType
from typing import Any

from pydantic import Field

from fedse.errors import BadInput, MissingExtra
from fedse.worlds.foreign.adapter import REPLY_FORM, SeededWorld, unknown
from fedse.worlds.world import Turn

_TURNS_WITHOUT_A_LIMIT = 50
_BRACKETED = re.compile(r"\[[^\[\]\n]{1,40}\]")
_NO_MOVES = {"[GAME]", "[Player]"}


class TextArenaGame(SeededWorld):
    """A game for one player. The agent sees the game's own texts, each once."""

    name = "textarena"
    version = 1

    class Options(SeededWorld.Options):
        game: str
        """Id of a game such as `Mastermind-v0`."""
        game_options: dict[str, Any] = Field(default_factory=dict)
        """Keywords for the game's constructor."""
        threshold: float = 1.0
        """Least final reward that counts as a success. Many games pay part of it to a player who did not win."""
        actions: list[str] = Field(default_factory=list)
        """Moves the floor is measured with; empty means the bracketed moves that the game's texts mention."""
        forgive_invalid: bool = True
        """An invalid move costs a turn and no more; otherwise the game ends by its own rule, mostly at the second."""
        turn_limit: int | None = Field(default=None, ge=1)
        """Turns per episode; empty means the game's own limit, or 50."""

    options: Options

    @cached_property
    def _library(self) -> ModuleType:
        try:
            with self._fence.inside():
                return importlib.import_module("textarena")
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"the world 'textarena' (game '{self.options.game}')", "textarena", "textarena"
            ) from error

    @cached_property
    def _game(self) -> Any:
        """The bare game: TextArena's wrappers would repeat the whole history each turn."""
        known = importlib.import_module("textarena.envs.registration").ENV_REGISTRY if self._library else {}
        if self.options.game not in known:
            raise unknown(self.options.game, "textarena: game", sorted(known))
        with self._fence.inside():
            try:
                game = self._library.make(self.options.game, **self.options.game_options)
                while isinstance(game, self._library.Wrapper):
                    game = game.env
                game.reset(num_players=1, seed=0)
            except (Exception, SystemExit) as error:
                # Games fail in many ways: more players, a corpus to download, a key for a service, a syntax error.
                reason = " ".join(str(error).replace("*", "").split())[:200] or type(error).__name__
                raise BadInput(f"textarena: game '{self.options.game}' cannot be played here: {reason}.") from error
        if not isinstance(game.state, self._library.SinglePlayerState):
            raise BadInput(f"textarena: game '{self.options.game}' is not for a single player.")
        return game

    @cached_property
    def rules(self) -> str:
        return (
            f"You play the game {self.options.game.partition('-')[0]} alone. The first observation explains it and says "
            "how a move is written, mostly in square brackets. "
            f"You have {self.turn_limit} turns. Answer with one move per turn, in two lines:\n"
            + REPLY_FORM.format(action="move")
        )

    @cached_property
    def turn_limit(self) -> int:
        return self.options.turn_limit or self._game.state.max_turns or _TURNS_WITHOUT_A_LIMIT

    def start(self, task: str) -> str:
        game, seed = self._game, self.seed_of(task)
        self._fence.seed(seed)
        with self._fence.inside():
            game.reset(num_players=1, seed=seed)
            if self.options.forgive_invalid:
                game.state.error_allowance = float("inf")
            first = self._news()
        self._mentioned = [move for move in dict.fromkeys(_BRACKETED.findall(first)) if move not in _NO_MOVES]
        return first

    def _news(self) -> str:
        """What the game has said since the last turn, without the echo of the player's own move."""
        _, messages = self._game.get_observation()
        return "\n".join(text for sender, text, _ in messages if sender == self._library.GAME_ID).strip()

    def play(self, action: str) -> Turn:
        move = action.strip()
        state = self._game.state
        with self._fence.inside():
            # As TextArena's own wrapper does: a move without brackets is put in brackets.
            done, _ = self._game.step(move if "[" in move else f"[{move}]")
            news = self._news()
        reward = float((state.rewards or {}).get(0, 0.0)) if done else 0.0
        if done:
            news = f"{news}\n{state.game_info[0].get('reason') or 'The game is over.'}".strip()
        invalid = state.error_count > 0 or bool(state.game_info[0].get("invalid_move"))
        return Turn(
            news or "(the game says nothing)",
            valid=not invalid,
            done=bool(done),
            success=bool(done) and not invalid and reward >= self.options.threshold,
            score=reward,
        )

    def trivial(self, draw: float) -> str:
        """Any of the moves that the game's opening text mentions, or of those given."""
        moves = self.options.actions or self._mentioned
        if not moves:
            raise BadInput(f"textarena: '{self.options.game}' mentions no move; name some in `actions`.")
        return moves[int(draw * len(moves))]
