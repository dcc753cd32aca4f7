"""Begin with conversations from a file: those of another run, of AgentGym, or of your own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Literal

from fedse.errors import BadInput
from fedse.events import Warned
from fedse.plugins import FilePath, PluginOptions
from fedse.protocols import Chat, Model
from fedse.starts.agentgym_file import Problem, Record, RecordFile, read_records
from fedse.starts.demonstrations import demonstration, tokenised
from fedse.types import Split, Trajectory
from fedse.worlds.answers import tasks_of
from fedse.worlds.foreign.agentgym_client import AgentGymServer
from fedse.worlds.training_part import part_of
from fedse.worlds.world import World

_SHOWN = 10
"""Problems that are printed one by one; of the others only the number is told."""
_AGENTGYM_FAMILY = "lmrlgym_"
"""AgentGym writes this before the names of its mazes and its Wordle."""


class Recorded:
    """Conversations of a file in AgentGym's layout (docs/starting.md), each taken for a success and tokenised once."""

    one_by_one = True

    class Options(PluginOptions):
        path: FilePath
        """The file: a JSON array of records, or one record a line."""
        bad_records: Literal["refuse", "skip"] = "refuse"
        """What to do when a record cannot be used: refuse to begin, or continue without it and say so."""

    def __init__(self, path: Path, bad_records: str = "refuse") -> None:
        self.path = path.expanduser()
        self.bad_records = bad_records

    @cached_property
    def _file(self) -> RecordFile:
        """Read once for all clients of a process."""
        found = read_records(self.path)
        if found.problems and self.bad_records == "refuse":
            lines = [f"start: {self.path}, {problem.place}: {problem.reason}." for problem in found.problems[:_SHOWN]]
            if len(found.problems) > _SHOWN:
                lines.append(f"start: {self.path}: {len(found.problems) - _SHOWN} more records cannot be used.")
            lines[-1] += " Mend the file, or set `start.bad_records: skip` to continue without such records."
            raise BadInput("\n".join(lines))
        return found

    def check(self, client: str, label: str, world: World, model: Model) -> list[Warned]:
        """Refuse what could not begin; return warnings about what was left out, is too long, and is held out."""
        chosen = self._of_world(client, label, world)
        before = _before_learning([record for _, record in chosen], model.chat)
        if min(before) >= model.context:
            raise BadInput(
                f"start: in {self.path} what stands before the first reply to learn from takes {min(before)} tokens or "
                f"more for world '{label}', and the model's context holds {model.context}: use a model with a longer "
                "context."
            )
        warnings: list[Warned] = []
        if self._file.problems:
            warnings.append(_skipped(self.path, self._file))
        if too_long := sum(tokens >= model.context for tokens in before):
            warnings.append(
                Warned(
                    kind="records_too_long",
                    message=f"{client}, {label}: of {too_long} of {len(chosen)} records in {self.path} nothing is "
                    f"learned, because their first reply to learn from lies beyond the model's context of {model.context} "
                    "tokens: use a model with a longer context, or take them out.",
                    details={"client": client, "world": label, "records": too_long},
                )
            )
        splits: tuple[Split, ...] = ("validation", "test")
        held_out = {task.id for split in splits for task in tasks_of(world, split)}
        held_out -= {task.id for task in tasks_of(world, "train")}
        leaked = sum(task in held_out for task, _ in chosen)
        if leaked:
            warnings.append(
                Warned(
                    kind="held_out_tasks",
                    message=f"{client}, {label}: {leaked} of {len(chosen)} records in {self.path} show tasks on which "
                    "this run measures success: take them out, or read the numbers of this world as what was memorised.",
                    details={"client": client, "world": label, "records": leaked},
                )
            )
        return warnings

    def fingerprint(self) -> str:
        return self._file.digest

    def size(self, client: str, label: str, world: World) -> int:
        return len(self._of_world(client, label, world))

    def trajectories(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Trajectory]:
        del seed  # The whole file is taken, in its order.
        attempts: dict[str, int] = {}
        found = []
        for task, record in self._of_world(client, label, world):
            # AgentGym shows some tasks many times; each showing is an attempt of its own.
            attempt = attempts.get(task, 0)
            attempts[task] = attempt + 1
            shown = demonstration(
                client,
                label,
                task,
                record.rules,
                record.steps,
                record.closing,
                score=record.score,
                attempt=attempt,
            )
            found.append(tokenised(shown, chat))
        return found

    def _of_world(self, client: str, label: str, world: World) -> list[tuple[str, Record]]:
        """Tasks and records of the first of the world's names that the file knows."""
        for name in _names(label, world):
            prefix = f"{name}_".lower()
            chosen = [
                (item[len(prefix) :], record)
                for record in self._file.records
                if (item := _without_family(record.item)).lower().startswith(prefix)
            ]
            if chosen:
                # Sites of one run may have worlds of the same name; where the file knows this client, it gets its own.
                own = [(task, record) for task, record in chosen if record.client in (client, "")]
                chosen = own if any(record.client == client for _, record in chosen) else chosen
                return self._in_part(client, label, world, chosen)
        present = sorted({_without_family(record.item).partition("_")[0] for record in self._file.records})
        raise BadInput(
            f"start: {self.path} holds no usable record for world '{label}' of client '{client}', whose item_id would begin "
            f"with '{label}_' (it holds: {', '.join(present[:_SHOWN]) or 'none at all'}): add some, or use "
            "`start: demonstrations` or `start: none`."
        )

    def _in_part(
        self, client: str, label: str, world: World, chosen: list[tuple[str, Record]]
    ) -> list[tuple[str, Record]]:
        """What a client may begin with that has a part of the training tasks: records of these tasks."""
        if part_of(world) is None:
            return chosen
        tasks = {task.id for task in tasks_of(world, "train")}
        if own := [(task, record) for task, record in chosen if task in tasks]:
            return own
        raise BadInput(
            f"start: none of the {len(chosen)} records in {self.path} for world '{label}' shows a training task of the part "
            f"that client '{client}' has (`clients.{client}.training`): add some, or use `start: demonstrations`."
        )


def _before_learning(records: Sequence[Record], chat: Chat) -> list[int]:
    """How many tokens stand before the first reply that each record is learned from."""
    openings: dict[str, int] = {}
    found = []
    for record in records:
        if record.rules not in openings:
            openings[record.rules] = len(chat.opening(record.rules))
        tokens = openings[record.rules]
        for step in record.steps:
            tokens += len(chat.turn(step.observation))
            if step.learned:
                break
            tokens += len(chat.reply(step.reply))
        found.append(tokens)
    return found


def _names(label: str, world: World) -> list[str]:
    """A second maze of a client is called maze#2 and takes records of that name, or else those of maze."""
    if isinstance(world, AgentGymServer):
        return [world.options.environment, label]
    return list(dict.fromkeys([label, label.split("#")[0], world.name]))


def _without_family(item: str) -> str:
    return item[len(_AGENTGYM_FAMILY) :] if item.lower().startswith(_AGENTGYM_FAMILY) else item


def _skipped(path: Path, file: RecordFile) -> Warned:
    def told(problem: Problem) -> str:
        return f"{problem.place} ({problem.reason})"

    more = len(file.problems) - _SHOWN
    return Warned(
        kind="records_skipped",
        message=f"{path}: {len(file.problems)} of {len(file.problems) + len(file.records)} records were skipped: "
        + "; ".join(told(problem) for problem in file.problems[:_SHOWN])
        + (f"; and {more} more, all named in events.jsonl" if more > 0 else "")
        + ".",
        details={
            "file": str(path),
            "records": len(file.problems),
            "skipped": [asdict(problem) for problem in file.problems],
        },
    )
