"""The errors fedse raises on purpose. Each message is one sentence: what is wrong, where, and what to do."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The command that adds an extra, as docs/learn/install.md has it: fedse is installed from a clone."""
    return f"`pip install -e '.[{extra}]'` in the clone of fedse"


class FedseError(Exception):
    """Something a user can mend. The command line prints the message alone and leaves with `exit_code`."""

    exit_code = 1


class BadInput(FedseError):
    """The user gave something that cannot be used; nothing was written."""

    exit_code = 2


class UnknownName(BadInput):
    """No plug-in has this name."""


class CannotImport(UnknownName):
    """The module of a plug-in raises an error of its own when it is imported."""


class MissingExtra(BadInput):
    """A library that this feature needs is not installed."""

    def __init__(self, feature: str, library: str, extra: str) -> None:
        super().__init__(f"{feature} needs the library {library}, which is not installed: run {how_to_install(extra)}.")


class TemplateNotAppendOnly(BadInput):
    """A chat template changes earlier turns, so token ids could not be kept as generated."""


class BufferUnusable(BadInput):
    """A buffer file is damaged, of a newer schema, or was made with another tokenizer."""


class RunConflict(BadInput):
    """A run folder belongs to another experiment, is in use, or is damaged."""


class CannotWrite(FedseError):
    """The disk is full or the folder is read-only."""


class GpuFull(FedseError):
    """The GPU has too little memory left for what was asked of it. What ended so may go on when others have left."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h


class CannotPull(FedseError):
    """A model could not be fetched, or what came is not what it should be."""


class WorldBroke(FedseError):
    """A world raised an error or said something that a world may not say."""


class TooManyErrors(FedseError):
    """Worlds broke more often than the experiment allows."""


class NothingTrained(FedseError):
    """No client sent an update that could be used although some tried."""


class BadAggregate(FedseError):
    """An aggregator made an adapter that can be neither stored nor broadcast."""


class TooFewClients(FedseError):
    """Too few clients answered before the deadline of a round."""


class TooMuchLeaves(FedseError):
    """An update is larger than the site lets out."""


class OutOfRange(FedseError):
    """An update goes further than a secure sum can hold."""


class SumRefused(FedseError):
    """A hub asks a site for a secure sum that the site does not take part in."""


class AnsweredAlready(FedseError):
    """A hub asks a site again, and otherwise, for a round that the site has answered under noise."""


class OldRound(FedseError):
    """A hub asks a site for a round before the one it answered last."""


class OtherTerms(FedseError):
    """A hub runs another experiment than the one a site has agreed to."""


class OverBudget(FedseError):
    """A hub asks a site for more than its operator allows."""


class UnreadableTask(FedseError):
    """What came to a site is not a task that it could do."""


class Unsealed(FedseError):
    """A task is not signed with the hub's own key, or was meant for another site."""


class TooLate(FedseError):
    """A site gave its work up, because the round it was for is over."""


class ServerFailed(FedseError):
    """The server of a served model stopped answering in the middle of a run."""


class SwapFailed(FedseError):
    """The adapter that answers is not the adapter that was loaded."""


class Stopped(Exception):
    """The run was asked to stop and has reached a safe point. Not an error."""
