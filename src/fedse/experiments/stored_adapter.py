"""The adapter of any round of a run, as one of its clients, or all of them, play with it."""

from __future__ import annotations

from fedse.adapters.plan import opened
from fedse.clients.notebook import Notebook
from fedse.clients.own import own_adapter
from fedse.clients.own_share import with_own_share
from fedse.clients.trials import TriesOut
from fedse.errors import BadInput
from fedse.experiments.building import build_mix
from fedse.experiments.running import stored_experiment
from fedse.federation.library import library_of
from fedse.federation.stored_state import stored_state
from fedse.plugins import nearest, nearest_or_all
from fedse.runs.reading import RunView
from fedse.runs.shared_adapter import mean_of_last
from fedse.types import Adapter, Sent


def stored_adapter(folder: RunView, number: int, client: str) -> Adapter:
    """The shared adapter after a round; with a client's name the one that it plays with, where that is another."""
    folder.check_state(number)
    experiment = stored_experiment(folder)
    if experiment.sharing == "none" and number > 0:
        clients = sorted(experiment.holdings)
        if client not in clients:
            what = f"--client {client}: {nearest(client, clients)}" if client else ""
            raise BadInput(
                f"{what}each client of {folder.path} has an adapter of its own; --client is one of {', '.join(clients)}."
            )
        if number < (first := experiment.joins(client)):
            raise BadInput(
                f"--client {client}: it joins in round {first} and has no adapter of its own after round {number}."
            )
        return own_adapter(folder, client, number)
    adapter = mean_of_last(folder, number, experiment.evaluation.mean_of_last)
    return _with_private_part(folder, adapter, client, number) if client else adapter


def known_clients(folder: RunView, client: str) -> list[str]:
    """The clients whose folders are here; the one asked for has to be among them."""
    clients = sorted(path.name for path in (folder.path / "clients").glob("*"))
    if client and client not in clients:
        raise BadInput(f"--client {client}: {nearest_or_all(client, clients, 'This run has:')}.")
    return clients


def _with_private_part(folder: RunView, adapter: Adapter, client: str, number: int) -> Adapter:
    known_clients(folder, client)
    folder.check_kept(client, number)
    private = Notebook(folder.client_folder(client) / "private")
    own = private.before(number + 1).tensors
    experiment = stored_experiment(folder)
    mix = build_mix(experiment, client)
    if isinstance(mix, TriesOut):
        raise BadInput(
            f"--client {client}: with `mix: {experiment.mix.name}` it plays before it chooses what to begin with, which is "
            "possible within a run only: leave it out, or evaluate the run with `fedse eval`."
        )
    if not own and not experiment.has_library:
        raise BadInput(
            f"--client {client}: it keeps nothing private, the adapter belongs to all clients: leave it out."
        )
    state = stored_state(folder, number)
    sent = Sent(adapter, number, state.contributed, opened(library_of(state), adapter.layout))
    return mix.compose(with_own_share(mix, sent, private), own)
