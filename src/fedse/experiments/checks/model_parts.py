"""Policies and learners that do not go with a model, found out before it is made."""

from __future__ import annotations

from fedse.experiments.file import at_key
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins.shipped import KNOWN

_OWN: dict[str, dict[str, str]] = {
    "table": {"policy": "table", "learner": "table"},
    "served": {"policy": "api", "learner": "none"},
}
"""Models that are no language models on this machine, and what goes with each."""
_USUAL = {"policy": "transformer", "learner": "imitation"}
_WITH_ANY = {"policy": frozenset({"lora_server"}), "learner": frozenset({"none"})}


def check_model_parts(experiment: ExperimentKeys) -> None:
    """Raises an error that points at the key. Of classes of somebody's own nothing is known."""
    model = experiment.model.name
    if experiment.model.foreign or model not in KNOWN["model"]:
        return
    for key, chosen in (("policy", experiment.policy.name), ("learner", experiment.learner.name)):
        owners = [name for name, parts in _OWN.items() if parts[key] == chosen]
        if chosen not in KNOWN[key] or chosen in _WITH_ANY[key] or model in owners:
            continue
        if owners or model in _OWN:
            needs = f"goes with the model '{owners[0]}' only" if owners else "needs a language model"
            use = _OWN.get(model, _USUAL)[key]
            default = "" if key in experiment.model_fields_set else " (the default)"
            raise at_key(f"'{chosen}'{default} {needs}, and the model is '{model}': use `{key}: {use}`.", key)
