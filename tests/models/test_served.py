"""A served model in the house: its conversations go back to messages, its empty adapter passes everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedse.adapters.files import read_adapter, write_adapter
from fedse.adapters.packing import pack, unpack
from fedse.conversation import ACCEPTANCE
from fedse.errors import BadInput
from fedse.experiments.components import build_components
from fedse.experiments.options import Experiment
from fedse.learners.none import NoLearning
from fedse.models.chat import ByteChat
from fedse.models.served import Served
from fedse.types import Lesson

CHAT = ByteChat()
API = {"name": "api", "url": "http://127.0.0.1:1/v1", "model": "m"}


def test_ids_of_a_conversation_give_back_its_messages() -> None:
    rules, first, answer, second = "Rules: größer 🙂\n", "You see a door.", "Thought: é\nAction: go", ""
    ids = [*CHAT.opening(rules), *CHAT.turn(first), *CHAT.reply(answer), *CHAT.turn(second)]
    assert CHAT.messages(ids) == [
        {"role": "user", "content": rules},
        {"role": "assistant", "content": ACCEPTANCE},
        {"role": "user", "content": first},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": second},
    ]
    cut = [*CHAT.opening(rules), *CHAT.turn(first), *CHAT.reply(answer)[:-1], *CHAT.reply(""), *CHAT.turn(second)]
    assert CHAT.messages(cut) == CHAT.messages(ids), "a reply without its end gets one before the next turn"
    assert CHAT.messages([]) == []


def test_the_empty_adapter_survives_wire_and_disk(tmp_path: Path) -> None:
    adapter = Served().initial_adapter(7)
    assert adapter.size == 0 and adapter.layout == ()
    vector = pack(adapter)
    assert vector.shape == (0,) and vector.dtype == np.float32
    assert unpack(vector, adapter.layout, adapter.config) == adapter
    write_adapter(adapter, tmp_path)
    assert read_adapter(tmp_path).digest() == adapter.digest()
    assert read_adapter(tmp_path).config == adapter.config


def test_no_learning_abstains() -> None:
    assert NoLearning(Served()).learn(Lesson(Served().initial_adapter(0), [], 0)) is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"policy": "transformer"}, "the model 'served' with policy 'api'"),
        ({"model": {"name": "table"}, "policy": API}, "policy: 'api' works with the model 'served' only"),
    ],
)
def test_parts_that_do_not_go_together_are_named(changes: dict[str, object], sentence: str) -> None:
    content = {"name": "x", "model": "served", "learner": "none", "clients": {"a": {"worlds": ["maze"]}}, **changes}
    with pytest.raises(BadInput, match=sentence):
        build_components(Experiment(**content))


def test_the_imitation_learner_names_the_one_that_goes_with_a_served_model() -> None:
    from fedse.learners.imitation import Imitation

    with pytest.raises(BadInput, match="the model 'served' with learner 'none'"):
        Imitation(Served())  # type: ignore[arg-type]
