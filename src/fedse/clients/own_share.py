"""What a client itself sent for a mean that it is sent back, so that it can take it out.

That is what it sent in the round that made the mean. A round may make none, as one whose secure sum is void: the next one
begins with the same adapter, and what the client sent in between is in no mean. So a client notes with what it keeps which
adapter it began with; what it began with the present one is not in the present one.
"""

from __future__ import annotations

from fedse.clients.notebook import Notebook
from fedse.protocols import Mix
from fedse.types import Adapter, Sent

_BEGAN = "began_with"


def began_with(mix: Mix, broadcast: Adapter) -> dict[str, str]:
    """What to note beside what is kept after a round."""
    return {_BEGAN: broadcast.digest()} if _takes_it_out(mix) else {}


def with_own_share(mix: Mix, broadcast: Sent, private: Notebook) -> Sent:
    """With what the client sent for it, if its mix takes that out."""
    if not _takes_it_out(mix):
        return broadcast
    digest = broadcast.adapter.digest()
    notes = private.before(broadcast.behind + 1, lambda values: values.get(_BEGAN) != digest)
    return broadcast._replace(own=notes.tensors)


def _takes_it_out(mix: Mix) -> bool:
    return getattr(mix, "needs_plain_mean", False)
