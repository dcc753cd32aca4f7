"""Methods as words. Each word stands for a position of four switches; Fed-SE itself is one of them.

| word | learning | exploring | sharing | pooled | |
| --- | --- | --- | --- | --- | --- |
| `fed_se` | yes | yes | all | no | the paper's method |
| `pretrained` | no | no | none | no | the base model as it is; no round is played |
| `local` | yes | no | none | no | each client fits its own adapter to what its buffer begins with |
| `centralized` | yes | no | all | yes | one client with the worlds, and what the buffers begin with, of all |
| `fedit` | yes | no | all | no | federated on what buffers begin with; mean weighted by the amount of data |
| `local_se` | yes | yes | none | no | self-evolution of each client by itself |
| `centralized_se` | yes | yes | all | yes | self-evolution of one client with all worlds |
| `specialist_generalist` | yes | yes | all | no | each client by itself, then the paper's method; `mix: specialists` |

All of them play, learn and measure by the same loop for the same number of rounds. `exploration.tasks` counts for each
world, so a pooled client explores as much as the clients it stands for together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic_core import PydanticCustomError

Method = Literal[
    "fed_se", "pretrained", "local", "centralized", "fedit", "local_se", "centralized_se", "specialist_generalist"
]
Sharing = Literal["all", "none"]


def _switches(learning: bool, exploring: bool, sharing: Sharing, pooled: bool) -> dict[str, Any]:
    return {"learning": learning, "exploring": exploring, "sharing": sharing, "pooled": pooled}


METHODS: dict[Method, dict[str, Any]] = {
    "fed_se": _switches(True, True, "all", False),
    "pretrained": _switches(False, False, "none", False),
    "local": _switches(True, False, "none", False),
    "centralized": _switches(True, False, "all", True),
    "fedit": {**_switches(True, False, "all", False), "aggregator": "size_weighted"},
    "local_se": _switches(True, True, "none", False),
    "centralized_se": _switches(True, True, "all", True),
    "specialist_generalist": {**_switches(True, True, "all", False), "mix": "specialists"},
}


def expand(content: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's content with the switches that its method stands for written out.

    Without a word the switches speak for themselves and the word that means the same, if there is one, is written down.
    """
    word = content.get("method")
    if word is None:
        return {**content, "method": _word_of(content)}
    if not isinstance(word, str) or word not in METHODS:
        return dict(content)  # Named as unknown by whoever checks the key.
    meaning = METHODS[word]
    content = {key: _named(value, meaning.get(key)) for key, value in content.items()}
    for key, value in meaning.items():
        if key in content and _name(content[key]) != value:
            raise PydanticCustomError(
                "unknown_name",
                "{message}",
                {
                    "message": f"method '{word}' means `{key}: {_yaml(value)}`, and the experiment says "
                    f"`{key}: {_yaml(_name(content[key]))}`: take one of the two out."
                },
            )
    return {**meaning, **content}


def in_words(experiment: Any) -> str:
    """The word and the switches of an experiment on one line."""
    switches = ", ".join(f"{key}: {_yaml(getattr(experiment, key))}" for key in METHODS["fed_se"])
    slots = ", ".join(f"{slot}: {getattr(experiment, slot).name}" for slot in ("aggregator", "mix"))
    return f"method {experiment.method or 'without a name'} ({switches}, {slots})"


def _word_of(content: Mapping[str, Any]) -> Method | None:
    given = {**METHODS["fed_se"], "aggregator": "mean", "mix": "broadcast", **content}
    fitting = [word for word, meaning in METHODS.items() if all(_name(given[key]) == meaning[key] for key in meaning)]
    return max(fitting, key=lambda word: len(METHODS[word]), default=None)


def _named(value: Any, meant: Any) -> Any:
    """Options of what the word means, which need not be named again."""
    return {"name": meant, **value} if isinstance(meant, str) and isinstance(value, Mapping) else value


def _name(value: Any) -> Any:
    """What a slot is filled with, whatever its options."""
    return value.get("name") if isinstance(value, Mapping) else getattr(value, "name", value)


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
