"""Work of experts and the like in processes beside this one, while the agent plays. What comes of it is what would here."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from fedse.types import Ahead, Share

_WORTH_A_PROCESS = 50
"""Episodes played by one process, at least: starting it takes a second."""


def begin_beside(wanted: Sequence[Ahead], processes: int) -> None:
    """Begin with all this in at most so many processes, if it is worth one."""
    processes = min(processes, sum(item.episodes for item in wanted) // _WORTH_A_PROCESS)
    if processes:
        beside = _Beside([item.share for item in wanted], processes)
        for place, item in enumerate(wanted):
            item.take(partial(beside.told, place))


class _Beside:
    """As many processes, each with its share of everything that is asked for; they leave when they have told it."""

    def __init__(self, asked: Sequence[Share], processes: int) -> None:
        # Started afresh rather than forked: a fork would copy the locks of torch's threads.
        context = multiprocessing.get_context("spawn")
        self._asked = len(asked)
        self._ends: list[Connection] = []
        self._workers = []
        self._told: list[Sequence[Any]] | None = None
        try:
            request = pickle.dumps(asked)
        except Exception:  # Whatever a class of somebody's own raises: it cannot leave this process.
            return
        for number in range(processes):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(theirs, number, processes), daemon=True)
            worker.start()
            # With its other end closed here, a worker whose parent was killed finds nobody to ask or tell and leaves.
            theirs.close()
            self._ends.append(ours)
            self._workers.append(worker)
        for end in self._ends:
            with suppress(OSError):
                end.send_bytes(request)

    def told(self, place: int) -> list[Any] | None:
        """What came of the request at this place, in order; None where a process could not do its share."""
        if self._told is None:
            self._told = [self._heard(end) for end in self._ends]
            for worker in self._workers:
                worker.join()
        shares = [told[place] for told in self._told]
        if not shares or any(share is None for share in shares):
            return None
        found: list[Any] = [None] * sum(map(len, shares))
        for number, share in enumerate(shares):
            found[number :: len(shares)] = share
        return found

    def _heard(self, end: Connection) -> Sequence[Any]:
        with end, suppress(EOFError, OSError):
            heard: Sequence[Any] = end.recv()
            return heard
        return [None] * self._asked


def _work(end: Connection, number: int, processes: int) -> None:
    """A worker: do everything first and tell it at the end, since nobody listens in between and a pipe holds little."""
    # Whatever goes wrong here is done again, and told, in the process that asked.
    with suppress(Exception, SystemExit, KeyboardInterrupt):
        end.send([_share(asked, number, processes) for asked in end.recv()])


def _share(asked: Share, number: int, processes: int) -> Sequence[Any] | None:
    with suppress(Exception, SystemExit):
        return asked(number, processes)
    return None
