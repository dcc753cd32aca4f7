"""Mistakes that authors of plug-ins make: each is told in a sentence, in all slots alike, as early as it can be known."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedse
from fedse import protocols
from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import Rule
from fedse.clients.guards import arrays, asked_of
from fedse.curricula.uniform import Uniform
from fedse.errors import BadAggregate, BadInput, UnknownName
from fedse.experiments.options import Experiment
from fedse.filters.none import KeepAll
from fedse.judges.world import WorldJudge
from fedse.learners.table import TableLearner
from fedse.mixes.broadcast import Broadcast
from fedse.objectives.cases import Case, examples_of
from fedse.objectives.objective import Objective, Scored, Weighed, checked_weights
from fedse.plugins import BUILT_WITH, PluginOptions, duties, options_of, resolve
from fedse.plugins.fitting import check_made, check_making, check_methods
from fedse.plugins.shipped import KNOWN
from fedse.rescues.none import NoRescue
from fedse.starts.none import NoDemonstrations
from fedse.types import Adapter, Episode, Play, Purpose, RoundTask, Trajectory, WorldScore
from fedse.worlds.maze import Maze

Make = Callable[..., Experiment]
HOWTO = Path(__file__).parents[1] / "docs/howto/plugins.md"


# When the experiment is read


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KNOWN.items() for name in names])
def test_every_shipped_plug_in_takes_what_its_slot_gives(kind: str, name: str) -> None:
    check_making(kind, name, resolve(kind, name), dict.fromkeys(options_of(kind, name).model_fields))


def test_the_page_for_authors_says_what_each_slot_gives() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|", HOWTO.read_text(), re.MULTILINE)
    given = {re.sub("(?<=[^s])s$", "", slot): tuple(re.findall(r"`(\w+)`", names)) for slot, names in rows}
    assert given == BUILT_WITH and given.keys() == KNOWN.keys()


class Plain:
    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return list(trajectories)


class TakesASite(Plain):
    def __init__(self, site: object) -> None:
        self.site = site


class ForgetsItsOption(Plain):
    class Options(PluginOptions):
        turns: int = 3


class OptionsOfNobody(Plain):
    class Options:
        turns = 3


class Keeps:
    def keeps(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        return trajectories


class KeepsByHeart:
    keep = 3


class KeepsNothingItIsGiven:
    def keep(self) -> list[Trajectory]:
        return []


class KeepsByName:
    def keep(self, *, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return list(trajectories)


class EmptyFilter(protocols.Filter):
    """Has the protocol's own empty method."""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Keeps, "the class has no method 'keep', which every filter needs."),
        (EmptyFilter, "the class has no method 'keep', which every filter needs."),
        (KeepsByHeart, "its 'keep' is no method, and every filter needs one of this name."),
        (KeepsByName, "its method 'keep' takes (self, *, trajectories), and is given (self, trajectories)."),
        (KeepsNothingItIsGiven, "its method 'keep' takes (self), and is given (self, trajectories)."),
        (
            TakesASite,
            "every filter is made with (), which its `__init__` does not take (missing a required argument: 'site').",
        ),
        (ForgetsItsOption, "every filter is made with (turns=...), which its `__init__` does not take"),
        (OptionsOfNobody, "its `Options` has to be a class that inherits from `PluginOptions`."),
        (Plain(), "expected the name of a filter, a class, or a mapping with 'name'"),
    ],
)
def test_a_class_that_does_not_fit_is_refused_when_it_is_read(table_experiment: Make, given: Any, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        table_experiment(filter=given)
    assert said in str(caught.value) and caught.value.exit_code == 2


class Nothing:
    """Neither methods nor an `__init__`."""


@pytest.mark.parametrize("kind", KNOWN)
def test_all_slots_are_treated_alike(kind: str) -> None:
    with pytest.raises(
        UnknownName, match=f"{kind} 'own': the class has no method '{duties(kind)[0]}', which every {kind}"
    ):
        check_methods(kind, "own", Nothing)
    if BUILT_WITH[kind]:
        with pytest.raises(UnknownName, match=f"{kind} 'own': every {kind} is made with"):
            check_making(kind, "own", Nothing, {})


def test_what_a_base_class_leaves_open_has_to_be_there(table_experiment: Make) -> None:
    class Forgetful(Rule):
        def combined(self, state: object, updates: object) -> None: ...

    class Silent(fedse.World):
        name, version, rules, turn_limit = "silent", 1, "Action: x", 3

        def begin(self, task: str) -> str:
            return task

    with pytest.raises(BadInput, match="the class has no 'combine', which its base class leaves to it to define"):
        table_experiment(aggregator=Forgetful)
    with pytest.raises(BadInput, match="the class has no 'act', which its base class leaves"):
        table_experiment(clients={"here": {"worlds": [Silent]}})


def half_of(keep: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(keep)
    def with_share(self: object, trajectories: Sequence[Trajectory]) -> Any:
        return keep(self, trajectories, 0.5)

    return with_share


class Decorated:
    @half_of
    def keep(self, trajectories: Sequence[Trajectory], share: float) -> Sequence[Trajectory]:
        return trajectories[: int(share * len(trajectories)) + 1]


class OfAnInstance:
    @cached_property
    def keep(self) -> Callable[..., Any]:
        return list


class AnyArguments:
    def keep(self, *given: Any, **named: Any) -> Any:
        return [*given[0], *named]


@pytest.mark.parametrize("given", [Decorated, OfAnInstance, AnyArguments])
def test_what_can_be_called_as_it_will_be_fits(table_experiment: Make, tmp_path: Path, given: Any) -> None:
    small = {"exploration": {"tasks": 2}, "evaluation": {"tasks": 1, "test_tasks": 0}, "rounds": 1}
    assert fedse.run(table_experiment(filter=given, **small), tmp_path).folder.exists()


def test_what_a_base_class_leaves_open_is_not_needed_by_who_replaces_its_users(table_experiment: Make) -> None:
    class Whole(Rule):
        def aggregate(self, state: Any, updates: Any) -> Any:
            return replace(state, round=state.round + 1), {}

    class Wrapper(fedse.World):
        name, version, rules, turn_limit = "wrapper", 1, "Action: x", 3

        def reset(self, **given: Any) -> Any:
            return "", {}

        def step(self, action: str) -> Any:
            return "", 0.0, True, False, {}

    table_experiment(aggregator=Whole)
    table_experiment(clients={"here": {"worlds": [Wrapper]}})


def test_a_world_that_is_not_one_is_refused_before_anything_is_written(table_experiment: Make, tmp_path: Path) -> None:
    class Looks:
        def __getattr__(self, name: str) -> Any:
            return getattr(Maze(mode="original"), name)

    for name in ("reset", "step", "tasks", "expert"):
        setattr(Looks, name, getattr(Maze, name))
    with pytest.raises(BadInput, match=r"does not inherit from fedse\.worlds\.world\.World"):
        fedse.run(table_experiment(clients={"here": {"worlds": [Looks]}}), tmp_path)
    assert not (tmp_path / "table").exists()


# What they return


class FilterNone(KeepAll):
    def keep(self, trajectories: Sequence[Trajectory]) -> Any:
        return None


class FilterGenerator(KeepAll):
    def keep(self, trajectories: Sequence[Trajectory]) -> Any:
        return (item for item in trajectories)


class FilterTwice(KeepAll):
    def keep(self, trajectories: Sequence[Trajectory]) -> Any:
        return [*trajectories, *trajectories]


class LearnerAlone(TableLearner):
    def learn(self, lesson: Any) -> Any:
        return lesson.start


class LearnerNumbers(TableLearner):
    def learn(self, lesson: Any) -> Any:
        return [1, 2]


class LearnerShape(TableLearner):
    def learn(self, lesson: Any) -> Any:
        return Adapter({name: tensor[:1] for name, tensor in lesson.start.tensors.items()}), {}


class LearnerLists(TableLearner):
    def learn(self, lesson: Any) -> Any:
        return Adapter({name: tensor.tolist() for name, tensor in lesson.start.tensors.items()}), {}


class LearnerWords(TableLearner):
    def learn(self, lesson: Any) -> Any:
        return lesson.start, {"loss": "low"}


class TogetherOne(TableLearner):
    at_once: Any = 4

    def learn_together(self, lessons: Any) -> Any:
        return [self.learn(lessons[0])]


class TogetherTooMany(TogetherOne):
    def learn_together(self, lessons: Any) -> Any:
        return [self.learn(lesson) for lesson in [*lessons, lessons[0]]]


class TogetherNone(TogetherOne):
    def learn_together(self, lessons: Any) -> Any:
        return None


class TogetherWords(TogetherOne):
    at_once = "4"


class MixTensors(Broadcast):
    def compose(self, sent: Any, kept: Any) -> Any:
        return sent.adapter.tensors


class MixSecondLesson(Broadcast):
    def lessons(self, sent: Any, entered: Any) -> Any:
        yield entered
        return (yield "the next one")


class MixSmall(Broadcast):
    def compose(self, sent: Any, kept: Any) -> Any:
        return Adapter({name: tensor[:1] for name, tensor in sent.adapter.tensors.items()})


class MixList(Broadcast):
    def lessons(self, sent: Any, adapter: Any) -> Any:
        return [adapter]


class MixForgets(Broadcast):
    def lessons(self, sent: Any, adapter: Any) -> Any:
        yield adapter


class MixKeepsNone(Broadcast):
    def keep(self, learned: Any) -> Any:
        return None


class JudgeNone(WorldJudge):
    def judge(self, trajectories: Any, entering: Any) -> Any:
        yield from ()


class JudgeNumbers(WorldJudge):
    def judge(self, trajectories: Any, entering: Any) -> Any:
        yield from ()
        return [item.score for item in trajectories]


class JudgeWords(WorldJudge):
    def rewards(self, trajectory: Any) -> Any:
        return {"mine": "good"}


class JudgeBare(WorldJudge):
    def judge(self, trajectories: Any, entering: Any) -> Any:
        yield from ()
        return [replace(item, rewards=1.0) for item in trajectories]


class PlansTasks(Uniform):
    def plan(self, task: RoundTask, past: Any) -> Any:
        yield from ()
        return self.chosen("maze", 1, past)


class PlansNothingAtAll(Uniform):
    def plan(self, task: RoundTask, past: Any) -> Any:
        yield from ()


class YieldsEpisodes(Uniform):
    def plan(self, task: RoundTask, past: Any) -> Any:
        yield (yield from super().plan(task, past))[0]


class NoTemperature(Uniform):
    def plan(self, task: RoundTask, past: Any) -> Any:
        yield from ()
        item = self.chosen("maze", 1, past)[0]
        return [self.site.episode("maze", item, Purpose.EXPLORE, task.round, 0, float("nan"))]


class StartNone(NoDemonstrations):
    empty = False

    def trajectories(self, *given: Any) -> Any:
        return None


class RescueWords(NoRescue):
    def rescue(self, explored: Any, entering: Any) -> Any:
        yield from ()
        return ["better"]


class ProbeOf:
    def __init__(self, site: Any) -> None:
        self.site = site

    def plan(self, task: RoundTask) -> Any:
        return []

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> Any:
        return []


class ProbeTasks(ProbeOf):
    def plan(self, task: RoundTask) -> Any:
        return self.site.places["maze"].tasks("train")[:1]


class ProbeNone(ProbeOf):
    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> Any:
        return None


class ProbeLearned(ProbeOf):
    class Options(PluginOptions):
        learned: bool = True

    def __init__(self, site: Any, learned: bool = True) -> None:
        super().__init__(site)

    def plan_learned(self, task: RoundTask) -> Any:
        item = self.site.places["maze"].tasks("train")[0]
        return [self.site.episode("maze", item, Purpose.EVALUATE, task.round, 0, 0.0)]


class LearnedTasks(ProbeLearned):
    def plan_learned(self, task: RoundTask) -> Any:
        return self.site.places["maze"].tasks("train")[:1]


class LearnedGenerator(ProbeLearned):
    def plan_learned(self, task: RoundTask) -> Any:
        yield from super().plan_learned(task)


class LearnedWords(ProbeLearned):
    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> Any:
        return ["good"] if played else []


class ProbeHalf(ProbeOf):
    successes: Any = 0.5
    floor = 0.0

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> Any:
        return [WorldScore("maze", "train", 1, self.successes, 0, 0, 0, {}, self.floor, None)]


class ProbeNan(ProbeHalf):
    successes = 1
    floor = float("nan")


_PAIR = "learner '{}': it has to return an adapter and its metrics, `(adapter, {{'loss': 0.5}})`, or None to abstain"


@pytest.mark.parametrize(
    ("slot", "given", "said"),
    [
        ("filter", FilterNone, "filter: it has to return a list of `Trajectory`, not None."),
        ("filter", FilterGenerator, "filter: it has to return a list of `Trajectory`, not something of the type gen"),
        ("filter", FilterTwice, "filter: it has to return some of the trajectories that it was given, each at most"),
        ("learner", LearnerAlone, f"{_PAIR.format('LearnerAlone')}, not something of the type Adapter."),
        ("learner", LearnerNumbers, f"{_PAIR.format('LearnerNumbers')}; in the place of the `Adapter` is something of"),
        ("learner", LearnerShape, "learner: it has to return all tensors that it began with, in their shapes"),
        (
            "learner",
            LearnerLists,
            "learner 'LearnerLists': 'table' has to be a NumPy array, not something of the type",
        ),
        ("learner", LearnerWords, "learner 'LearnerWords': 'loss' has to be a number, not something of the type str."),
        (
            "learner",
            TogetherOne,
            "'TogetherOne': `learn_together` was given 2 lessons and has to return a list with",
        ),
        ("learner", TogetherTooMany, "one item for each, in their order, not 3 items."),
        ("learner", TogetherNone, "one item for each, in their order, not None."),
        (
            "learner",
            TogetherWords,
            "'TogetherWords': `at_once` has to be a whole number of at least 1, not something of",
        ),
        ("mix", MixTensors, "mix, `compose`: it has to give an `Adapter`, not something of the type"),
        ("mix", MixSmall, "mix, `compose`: it has to give all tensors of the broadcast adapter, in their shapes."),
        ("mix", MixList, "mix, `lessons`: it has to be a generator"),
        ("mix", MixForgets, "mix, `lessons`: it has to give an `Adapter`, not None."),
        ("mix", MixSecondLesson, "mix, `lessons`: it has to give an `Adapter`, not something of the type str."),
        ("mix", MixKeepsNone, "mix, `keep`: it has to give NumPy arrays by name, not None."),
        ("judge", JudgeNone, "judge: it has to return a list of `Trajectory`, not None."),
        ("judge", JudgeNumbers, "judge: it has to return a list of `Trajectory`, not one with something of the type"),
        ("judge", JudgeWords, "judge: 'mine' has to be a number, not something of the type str."),
        ("judge", JudgeBare, "judge: it has to give numbers by name"),
        ("curriculum", PlansTasks, "curriculum: it has to return a list of `Episode`, not one with something of the"),
        ("curriculum", PlansNothingAtAll, "curriculum: it has to return a list of `Episode`, not None."),
        ("curriculum", YieldsEpisodes, "YieldsEpisodes: it has to ask with `played = yield Play(adapter, episodes)`"),
        ("curriculum", NoTemperature, "curriculum: it planned an episode at a temperature of nan"),
        ("start", StartNone, "start: it has to return a list of `Trajectory`, not None."),
        ("rescue", RescueWords, "rescue: it has to return a list of `Trajectory`, not one with something of the type"),
        ("probes", [ProbeTasks], "probe 'ProbeTasks': it has to return a list of `Episode`, not one with"),
        ("probes", [ProbeNone], "probe 'ProbeNone': it has to return a list of `WorldScore`, not None."),
        ("probes", [LearnedTasks], "probe 'LearnedTasks_learned': it has to return a list of `Episode`, not one with"),
        ("probes", [LearnedGenerator], "probe 'LearnedGenerator_learned': it has to return a list of `Episode`, not"),
        ("probes", [LearnedWords], "probe 'LearnedWords_learned': it has to return a list of `WorldScore`, not one"),
        ("probes", [ProbeHalf], "probe 'ProbeHalf': a score holds counts of the type int"),
        ("probes", [ProbeNan], "probe 'ProbeNan': a score holds one of the splits train, validation, test, and fin"),
    ],
)
def test_the_wrong_kind_of_answer_is_told_in_a_sentence(
    table_experiment: Make, tmp_path: Path, slot: str, given: Any, said: str
) -> None:
    small = {"exploration": {"tasks": 2}, "evaluation": {"tasks": 1, "test_tasks": 0}, "rounds": 1}
    with pytest.raises(BadInput) as caught:
        fedse.run(table_experiment(**small, **{slot: given}), tmp_path)
    assert said in str(caught.value)


class Stays(Mean):
    def aggregate(self, state: Any, updates: Any) -> Any:
        following, numbers = super().aggregate(state, updates)
        return replace(following, round=state.round), numbers


class OnlyTheState(Mean):
    def aggregate(self, state: Any, updates: Any) -> Any:
        return super().aggregate(state, updates)[0]


class OnlyTheAdapter(Mean):
    def aggregate(self, state: Any, updates: Any) -> Any:
        return super().aggregate(state, updates)[0].adapter, {}


class RemembersANumber(Mean):
    def aggregate(self, state: Any, updates: Any) -> Any:
        return replace(super().aggregate(state, updates)[0], memory={"steps": 3}), {}


@pytest.mark.parametrize(
    ("aggregator", "said"),
    [
        (Stays, "its state is of round 0, and has to be of round 1"),
        (
            OnlyTheState,
            "it has to return `(state, numbers)`, the latter by name, not something of the type ServerState",
        ),
        (OnlyTheAdapter, "has to be a `ServerState`, not something of the type Adapter"),
        (RemembersANumber, "its adapter and its memory have to hold NumPy arrays"),
    ],
)
def test_an_aggregators_result_is_checked_as_a_whole(
    table_experiment: Make, tmp_path: Path, aggregator: Any, said: str
) -> None:
    with pytest.raises(BadAggregate) as caught:
        fedse.run(table_experiment(aggregator=aggregator, rounds=1), tmp_path)
    assert said in str(caught.value)


def test_numbers_of_numpy_are_numbers(table_experiment: Make, tmp_path: Path) -> None:
    class Single(TableLearner):
        def learn(self, lesson: Any) -> Any:
            learned = super().learn(lesson)
            return learned and (learned[0], {"loss": np.float32(0.5)})

    class Telling(Mean):
        def aggregate(self, state: Any, updates: Any) -> Any:
            return super().aggregate(state, updates)[0], {"mine": np.float32(0.25)}

    result = fedse.run(table_experiment(learner=Single, aggregator=Telling, rounds=1), tmp_path)
    written = (result.folder / "rounds/0001/report.json").read_text()
    assert '"mine": 0.25' in written and '"loss": 0.5' in written


def test_what_a_plug_in_asks_for_on_the_way_still_reaches_it() -> None:
    def asking() -> Generator[Play, list[Trajectory], list[Episode]]:
        played = yield Play(Adapter({}), [])
        return [*played, "end"]  # type: ignore[list-item]

    work = asked_of(object(), asking())
    assert isinstance(next(work), Play)
    with pytest.raises(StopIteration) as ended:
        work.send(["played"])  # type: ignore[list-item]
    assert ended.value.value == ["played", "end"]


def test_a_plug_in_that_asks_hears_of_errors_and_of_the_end() -> None:
    heard: list[str] = []

    def asking() -> Generator[Play, list[Trajectory], list[Episode]]:
        try:
            yield Play(Adapter({}), [])
        except ValueError:
            heard.append("error")
        try:
            yield Play(Adapter({}), [])
        finally:
            heard.append("end")
        return []

    work = asked_of(object(), asking())
    next(work)
    assert isinstance(work.throw(ValueError("broken")), Play)
    work.close()
    assert heard == ["error", "end"]


def test_what_worked_before_still_does(table_experiment: Make, tmp_path: Path) -> None:
    """Lists in place of pairs, a number that a mix keeps, diagnostics that are more than numbers."""

    class Pair(TableLearner):
        def learn(self, lesson: Any) -> Any:
            learned = super().learn(lesson)
            return learned and list(learned)

    class Nested(Mean):
        def aggregate(self, state: Any, updates: Any) -> Any:
            return [super().aggregate(state, updates)[0], {"weights": {"east": 0.5}}]

    result = fedse.run(table_experiment(learner=Pair, aggregator=Nested, rounds=1), tmp_path)
    assert arrays({"counted": np.float32(3)}, "mix, `keep`")["counted"].shape == ()
    assert '"east": 0.5' in (result.folder / "rounds/0001/report.json").read_text()


# Rules, and what a program gives


class Bare:
    """An objective that inherits from nothing."""

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        return Weighed([np.ones(len(item.now)) for item in batch], 0.0)


def test_an_objective_is_checked_like_a_plug_in() -> None:
    class Weight(Objective):
        def weight(self, batch: Sequence[Scored]) -> None: ...

    check_made("objective", Bare(), Objective)
    check_made("objective", SimpleNamespace(weigh=lambda batch: None), Objective)
    with pytest.raises(UnknownName, match=r"its method 'weigh' takes \(\), and is given \(batch\)\."):
        check_made("objective", SimpleNamespace(weigh=lambda: None), Objective)
    with pytest.raises(UnknownName, match="objective 'Weight': the class has no method 'weigh', which every objective"):
        check_made("objective", Weight(), Objective)  # type: ignore[abstract]
    with pytest.raises(UnknownName, match=r"objective 'Bare': this is a class; give what it makes, `Bare\(\.\.\.\)`"):
        check_made("objective", Bare, Objective)


def test_a_tracker_that_is_none_is_refused_before_anything_is_written(table_experiment: Make, tmp_path: Path) -> None:
    class Listening:
        def record(self, event: object) -> None: ...

    for given, said in ((Listening, "this is a class"), (print, "the class has no method 'record'")):
        with pytest.raises(BadInput, match=said):
            fedse.run(table_experiment(), tmp_path, trackers=[given])  # type: ignore[list-item]
    assert not (tmp_path / "table").exists()


def _scored() -> list[Scored]:
    shown = Trajectory(
        client="c",
        world="w",
        task="t",
        purpose=Purpose.EXPLORE,
        round=1,
        attempt=0,
        adapter="",
        steps=(),
        closing="",
        outcome=fedse.Outcome.SUCCESS,
        score=1.0,
        token_ids=(1, 2, 3),
        train_mask=(False, True, True),
    )
    return [Scored(example, np.zeros(2), np.zeros(2)) for example in examples_of([shown, shown], 10)]


@pytest.mark.parametrize(
    ("weighed", "said"),
    [
        (None, "objective 'Bare', `weigh`: it has to return `Weighed`, not None."),
        (Weighed([np.ones(2)], 0.0), r"the shapes [(2,), (2,)], not [(2,)]."),
        (Weighed([np.ones(2)] * 3, 0.0), r"the shapes [(2,), (2,)], not [(2,), (2,), (2,)]."),
        (Weighed([np.ones(2), np.ones(1)], 0.0), r"the shapes [(2,), (2,)], not [(2,), (1,)]."),
        (Weighed([np.ones(2)] * 2, 0.0, {"kind": "good"}), "objective 'Bare': 'kind' has to be a number"),  # type: ignore[dict-item]
    ],
)
def test_weights_that_do_not_fit_the_batch_are_refused(weighed: Any, said: str) -> None:
    batch = _scored()
    assert checked_weights(Bare(), batch, Bare().weigh(batch)).loss == 0.0
    once = Weighed((own for own in Bare().weigh(batch).weights), 0.0)  # type: ignore[arg-type]
    assert len(list(checked_weights(Bare(), batch, once).weights)) == len(batch)
    with pytest.raises(BadInput) as caught:
        checked_weights(Bare(), batch, weighed)
    assert said in str(caught.value)


def test_a_case_has_a_credit_for_each_trajectory() -> None:
    with pytest.raises(BadInput, match="one credit for each of its trajectories, not 0 for 1"):
        Case(("one",), ())  # type: ignore[arg-type]
