"""`rules: bare` asks for an action without a thought, and the expert shows it so."""

from __future__ import annotations

import pytest

from fedse.plugins import resolve
from fedse.rollouts.replies import compose, parse
from fedse.worlds.check import check

WORLDS = ["babyai", "maze", "textcraft", "webshop", "wordle"]


@pytest.mark.parametrize("name", WORLDS)
def test_the_rules_are_the_brief_ones_but_for_the_thought(name: str) -> None:
    bare, brief = (resolve("world", name)(rules=rules) for rules in ("bare", "brief"))
    assert "Thought" not in bare.rules
    assert bare.rules.replace("one line:\n", "two lines:\nThought: <short reason>\n") == brief.rules


@pytest.mark.parametrize("name", WORLDS)
def test_the_expert_acts_as_with_brief_rules_and_says_nothing(name: str) -> None:
    bare, brief = (resolve("world", name)(rules=rules) for rules in ("bare", "brief"))
    for task in bare.tasks("train")[:3]:
        assert bare.reset(options={"task": task.id}) == brief.reset(options={"task": task.id})
        over = False
        while not over:
            (thought, action), (reason, same) = bare.expert(), brief.expert()
            assert (thought, action) == ("", same) and reason
            assert compose(thought, action) == f"Action: {action}"
            assert parse(compose(thought, action)).action == action
            told, *_ = bare.step(action)
            again, _, terminated, truncated, _ = brief.step(action)
            assert told == again
            over = terminated or truncated


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_with_bare_rules_keeps_the_promise_about_its_description(name: str) -> None:
    kind = resolve("world", name)
    (found,) = check(lambda: kind(rules="bare"), only=["description"])
    assert found.passed, found
