"""The state that a run has stored after a round: all that its next round depends on, as far as it is the server's."""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedse.errors import RunConflict
from fedse.runs.reading import RunView
from fedse.runs.shared_adapter import shared_adapter
from fedse.types import ServerState


def stored_state(run: RunView, number: int) -> ServerState:
    """Verified against the manifest."""
    adapter = shared_adapter(run, number)
    memory_file = run.round_folder(number) / "server" / "memory.safetensors"
    try:
        memory = load_file(memory_file) if memory_file.exists() else {}
    except (SafetensorError, OSError) as error:
        raise RunConflict(f"{memory_file} is damaged ({error}): restore it from a copy of the run.") from error
    record = run.record_of(number)
    return ServerState(number, adapter, memory, record.contributed if record else ())
