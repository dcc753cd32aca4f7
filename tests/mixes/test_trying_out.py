"""Clients that try adapters before they begin a round: weights by hand, trials played again, whole runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import fedse
from factored_table import FactoredLearner
from fedse.adapters.plan import opened
from fedse.aggregators.mean import Mean
from fedse.cli import app
from fedse.clients.site import Site
from fedse.clients.trials import Trial
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.federation.library import library_of
from fedse.federation.playing import of_one_process
from fedse.federation.stored_state import stored_state
from fedse.mixes.defer_to_best import DeferToBest
from fedse.mixes.trial import SHARED
from fedse.mixes.weight_by_gain import WeightByGain
from fedse.types import Adapter, Lesson, Outcome, Play, Purpose, Sent, ServerState, Tensors
from short_maze import SHORT_MAZE

MAZES = [SHORT_MAZE, {**SHORT_MAZE, "turn_limit": 12}]
THREE = {name: {"worlds": [MAZES[number % 2]]} for number, name in enumerate(("east", "north", "west"))}
NAMES = ("defer_to_best", "weight_by_gain")


class Spoils(Mean):
    """Broadcasts the opposite of what clients have learned, so that everybody does better with a single adapter."""

    def aggregate(self, state: ServerState, updates: Any) -> Any:
        following, numbers = super().aggregate(state, updates)
        opposite = {
            name: -tensor if ".lora_B." in name else tensor for name, tensor in following.adapter.tensors.items()
        }
        return replace(following, adapter=Adapter(opposite, state.adapter.config)), numbers


def test_the_best_is_taken_and_of_equal_ones_the_broadcast_and_then_the_own() -> None:
    mix = DeferToBest("me", 0)
    assert mix.weights({SHARED: 0.2, "east": 0.5, "me": 0.4}) == {"east": 1.0}
    assert mix.weights({SHARED: 0.5, "east": 0.5, "me": 0.5}) == {SHARED: 1.0}
    assert mix.weights({SHARED: 0.1, "east": 0.5, "me": 0.5, "a": 0.5}) == {"me": 1.0}
    assert mix.weights({SHARED: 0.1, "east": 0.5, "b": 0.5}) == {"b": 1.0}


def test_weights_are_the_gains_over_the_broadcast_adapter() -> None:
    mix = WeightByGain("me", 0)
    assert mix.weights({SHARED: 0.2, "east": 0.5, "me": 0.3, "west": 0.1}) == pytest.approx(
        {SHARED: 0.0, "east": 0.75, "me": 0.25, "west": 0.0}
    )
    assert mix.weights({SHARED: 0.5, "east": 0.5, "west": 0.0}) == {SHARED: 1.0}


def test_what_is_composed_is_the_weighted_sum() -> None:
    library = {name: {"t": np.full((2, 2), value, np.float32)} for name, value in (("east", 3.0), ("west", 5.0))}
    sent = Sent(Adapter({"t": np.ones((2, 2), np.float32)}, {"r": 2}), 3, (), library)
    mix = WeightByGain("me", 0)

    def begin(**weights: float) -> Any:
        kept = {f"weight/{name}": np.array([weight], np.float32) for name, weight in weights.items()}
        return mix.compose(sent, kept).tensors

    assert begin(east=0.25, west=0.75)["t"].tolist() == [[4.5, 4.5], [4.5, 4.5]]
    assert begin(west=1.0)["t"].tolist() == library["west"]["t"].tolist()
    assert begin().keys() == {"t"} and begin()["t"].tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("name", NAMES)
def test_a_trial_played_again_has_the_same_weights(
    factored: Callable[..., Experiment], tmp_path: Path, name: str
) -> None:
    setting = {"mix": {"name": name, "tasks": 6}, "clients": THREE, "aggregator": f"{__name__}:Spoils"}
    result = fedse.run(factored(**setting, rounds=2), tmp_path)
    taken = set()
    with open_run(result.folder) as federation:
        state = stored_state(federation.run, 1)
        candidates = {SHARED: state.adapter.tensors, **opened(library_of(state), state.adapter.layout)}
        assert candidates.keys() == {SHARED, *THREE}
        for client in federation.clients:
            mix: Any = client.adapters.mix
            episodes = mix._episodes(client.site, 2)
            place = client.site.places["maze"]
            assert len(episodes) == 6 and {episode.task.id for episode in episodes} <= place.training
            assert {episode.sampling.temperature for episode in episodes} == {0.0}
            success = {}
            for one, tensors in candidates.items():
                played = of_one_process(federation.engine).play(Adapter(tensors, state.adapter.config), episodes)
                success[one] = sum(item.outcome is Outcome.SUCCESS for item in played) / 6
            best = max(success.values())
            kept = load_file(result.folder / f"clients/{client.name}/state/trial/0002.safetensors")
            assert kept.pop("before_round").tolist() == [2]
            weights = {key.removeprefix("weight/"): float(value[0]) for key, value in kept.items()}
            gains = {one: share - success[SHARED] for one, share in success.items() if share > success[SHARED]}
            if not gains:
                assert weights == {SHARED: 1.0}
            elif name == "defer_to_best":
                assert list(weights.values()) == [1.0] and success[next(iter(weights))] == best
            else:
                assert weights == pytest.approx({one: gain / sum(gains.values()) for one, gain in gains.items()})
            taken |= weights.keys()
    assert taken - {SHARED}, "nobody took anything else than the broadcast adapter, so nothing was tried here"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "every"), [("defer_to_best", 1), ("weight_by_gain", 2)])
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    factored: Callable[..., Experiment], tmp_path: Path, name: str, every: int
) -> None:
    setting = {"mix": {"name": name, "tasks": 4, "every": every}, "clients": THREE, "aggregator": f"{__name__}:Spoils"}
    straight = fedse.run(factored(**setting), tmp_path / "straight")
    fedse.run(factored(**setting, rounds=2), tmp_path / "stopped")
    resumed = fedse.run(factored(**setting), tmp_path / "stopped")
    crossed = fedse.run(factored(**setting, engine="carried_tasks:Carried"), tmp_path / "crossed")
    for other in (resumed, crossed):
        assert other.adapter.digest() == straight.adapter.digest()
        assert other.validation["worlds"] == straight.validation["worlds"]
        for path in sorted((straight.folder / "clients").rglob("trial/*.safetensors")):
            assert path.read_bytes() == (other.folder / path.relative_to(straight.folder)).read_bytes()
    with open_run(straight.folder) as federation:
        before = straight.validation
        assert federation.server.evaluate(3, "validation")["worlds"] == before["worlds"]


class InTurn(WeightByGain):
    """Takes other adapters in every round: the broadcast one, that of one client, the mean of two others."""

    chosen: ClassVar[list[list[str]]] = [[SHARED], ["east"], ["north", "west"]]
    trials: ClassVar[dict[str, int]] = {}

    def weights(self, success: Any) -> Any:
        trial = InTurn.trials[self.client] = InTurn.trials.get(self.client, -1) + 1
        names = self.chosen[trial % len(self.chosen)]
        return {name: 1 / len(names) for name in names}


def test_a_trial_leaves_nothing_of_the_one_before(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    InTurn.trials.clear()
    result = fedse.run(factored(mix={"name": f"{__name__}:InTurn", "tasks": 1}, clients=THREE, rounds=5), tmp_path)
    with open_run(result.folder) as federation:
        for number in range(1, 5):
            state = stored_state(federation.run, number)
            known = {SHARED: state.adapter.tensors, **opened(library_of(state), state.adapter.layout)}
            taken = [known[name] for name in InTurn.chosen[(number - 1) % 3]]
            begun = {name: np.mean([one[name] for one in taken], 0, np.float64).astype("f4") for name in taken[0]}
            wanted = Adapter(begun, state.adapter.config).digest()
            for client in federation.clients:
                episodes = client.experience.journal.read(f"{number + 1:04d}")
                assert {episode.adapter for episode in episodes} == {wanted}, (client.name, number + 1)


class Abstains(FactoredLearner):
    """Learns nothing in round 4, as rules of groups do where all attempts end alike."""

    round = 0

    def enter(self, round: int) -> None:
        self.round = round

    def learn(self, lesson: Lesson) -> Any:
        return None if self.round == 4 else super().learn(lesson)


def test_a_trial_holds_until_the_next_even_if_nothing_was_learned_after_it(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    InTurn.trials.clear()
    setting = {"mix": {"name": f"{__name__}:InTurn", "tasks": 1, "every": 2}, "clients": THREE, "rounds": 5}
    result = fedse.run(factored(**setting, learner=f"{__name__}:Abstains"), tmp_path)
    for name in THREE:
        kept = {
            number: load_file(result.folder / f"clients/{name}/state/trial/000{number}.safetensors")
            for number in (2, 4, 5)
        }
        weights = {number: {key for key in found if key.startswith("weight/")} for number, found in kept.items()}
        assert weights == {2: {"weight/"}, 4: {"weight/east"}, 5: {"weight/east"}}


class TooMuch(DeferToBest):
    """Takes two whole adapters."""

    def weights(self, success: Any) -> Any:
        return {SHARED: 1.0, self.client: 1.0}


def test_weights_that_do_not_add_up_to_one_are_refused(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="they add up to 2, and have to add up to 1"):
        fedse.run(factored(mix={"name": f"{__name__}:TooMuch", "tasks": 1}, clients=THREE, rounds=2), tmp_path)


class Noted(DeferToBest):
    """Notes the rounds before which it plays."""

    tried: ClassVar[list[tuple[str, int]]] = []

    def weights(self, success: Any) -> Any:
        Noted.tried.append((self.client, len(success)))
        return super().weights(success)


@pytest.mark.slow
def test_trials_come_as_often_as_asked_for(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    Noted.tried.clear()
    clients = {**THREE, "guest": {"worlds": [MAZES[0]], "learns": False}}
    setting = {"mix": {"name": f"{__name__}:Noted", "tasks": 1, "every": 3}, "clients": clients, "rounds": 6}
    result = fedse.run(factored(**setting), tmp_path)
    # Before rounds 2 and 5, of the broadcast adapter and three others; the closing evaluation is before a seventh.
    assert sorted(Noted.tried) == [(name, 4) for name in sorted(THREE) for _ in range(2)]
    kept = sorted(path.name for path in (result.folder / "clients/east/state/trial").iterdir())
    assert kept == [f"000{number}.safetensors" for number in range(2, 7)]
    assert not (result.folder / "clients/guest/state").exists()


@pytest.mark.slow
def test_a_client_that_is_asked_now_and_then_tries_as_often_as_the_others(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    Noted.tried.clear()
    four = {name: {"worlds": [MAZES[0]]} for name in ("a", "b", "c", "d")}
    setting = {"mix": {"name": f"{__name__}:Noted", "tasks": 1, "every": 2}, "clients": four, "rounds": 12}
    fedse.run(factored(**setting, participation={"fraction": 0.25, "draw": "in_turn"}), tmp_path)
    counts = [sum(name == client for client, _ in Noted.tried) for name in four]
    # Three turns each, four rounds apart, and the closing evaluation. At the first turn of all there was no library yet; the
    # client that had the last turn needs no other trial right after it.
    assert sorted(counts) == [3, 3, 4, 4]


class Peeks(DeferToBest):
    """Tries on tasks that are held out."""

    def try_out(self, site: Site, sent: Sent, earlier: Tensors) -> Trial:
        held_out = site.places["maze"].tasks("validation")[:1]
        yield Play(sent.adapter, [site.episode("maze", task, Purpose.EVALUATE, 1) for task in held_out])
        return {}


def test_held_out_tasks_are_not_tried(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    worlds = [{"name": "maze"}]
    with pytest.raises(BadInput, match="which is not a training task of the world 'maze'"):
        fedse.run(factored(mix=f"{__name__}:Peeks", clients={"east": {"worlds": worlds}}), tmp_path)


@pytest.mark.slow
def test_what_a_client_would_choose_next_is_not_exported(factored: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(factored(mix={"name": "defer_to_best", "tasks": 1}, clients=THREE, rounds=2), tmp_path)
    done = CliRunner().invoke(app, ["export", str(result.folder), str(tmp_path / "east"), "--client", "east"])
    assert done.exit_code == 2 and "it plays before it chooses" in " ".join(done.output.split())
    assert not (tmp_path / "east").exists()


@pytest.mark.parametrize("change", [{"tasks": 0}, {"every": 0}, {"temperature": 1}])
def test_bad_options_are_refused(factored: Callable[..., Experiment], change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=rf"mix\.{next(iter(change))}: "):
        factored(mix={"name": "defer_to_best", **change})
