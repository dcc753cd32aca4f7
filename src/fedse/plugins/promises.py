"""Trying what an author promises: each promise becomes a finding with a sentence that says what was seen."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    passed: bool
    detail: str
    made: bool = True
    """False where the subject does not make this promise: it passed, and there was nothing to keep."""


class Broken(Exception):
    """A promise that is not kept; the message says which."""


class NotMade(Exception):
    """A promise that the subject does not make; the message says so, and what was seen."""


def demand(kept: bool, otherwise: str) -> None:
    if not kept:
        raise Broken(otherwise)


def try_promises(
    promises: Mapping[str, Callable[[Subject], str]], subject: Subject, only: Collection[str] = ()
) -> list[Finding]:
    """Try every promise, or only those with these names. Nothing that a subject prints gets through."""
    return [_try(name, promise, subject) for name, promise in promises.items() if not only or name in only]


def _try(name: str, promise: Callable[[Subject], str], subject: Subject) -> Finding:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return Finding(name, True, promise(subject))
    except NotMade as left_out:
        return Finding(name, True, str(left_out), made=False)
    except Broken as broken:
        return Finding(name, False, str(broken))
    except Exception as error:
        # Whatever a subject under test raises is a finding; the other promises are still worth trying.
        return Finding(name, False, f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def expected(error: type[Exception], what: str) -> Iterator[None]:
    """The body has to raise this error."""
    try:
        yield
    except error:
        return
    except Exception as other:
        raise Broken(f"{what} raises {type(other).__name__} instead of {error.__name__}") from other
    raise Broken(f"{what} does not raise {error.__name__}")
