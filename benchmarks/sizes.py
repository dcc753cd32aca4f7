"""What a round costs with networks of the sizes that people use: which path each takes, how fast, in how much memory.

python benchmarks/sizes.py --out sizes.json                       all shapes, one after another, on one GPU
python benchmarks/sizes.py --shapes Qwen2.5-7B --out sizes.json

Weights are random (`shapes.py`), so what is measured is speed and memory. Each measurement is made in a process of its own:

playing   replies of a fixed length by the policy, all slots busy, beside `generate` with the same conversations as one
          batch, and beside what the memory of the card allows: every step reads all weights and all keys and values once
learning  `learning.py`: the learner and peft with the Trainer on the same trajectories

The last table is arithmetic: the tokens that a recorded run of the paper's protocol played and learned (`PROTOCOL`),
divided by these speeds. It leaves out what worlds and the host cost.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rollouts_gpu import bandwidth
from shapes import SHAPES, model_class
from speed import Rows, markdown

from fedse.networks.training.passes import pass_for
from fedse.policies.transformer import TransformerPolicy
from fedse.types import Sampling

HERE = Path(__file__).parent
PROTOCOL = {"prefilled": 2_230_000, "sampled": 1_570_000, "learned": 28_500_000, "learned_6284": 119_000_000}
"""Tokens of twenty rounds with five sites and 64 explored tasks each. Played: SmolLM2-135M with 200 demonstrations per site
(docs/results/sharing_seeds.json, seed 1: 349 prefilled and 246 sampled per episode in rounds 3 to 19), learned in the same
run, and in one with 6,284 demonstrations in all (docs/performance.md)."""


class Fixed(TransformerPolicy):
    """No reply ends before its longest."""

    def make_decoder(self) -> Any:
        self.model.chat.end_ids = frozenset()
        return super().make_decoder()


def conversations(slots: int, context: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(0)
    return torch.randint(0, 250, (slots, context), generator=random).tolist()  # type: ignore[no-any-return]


def replied(policy: TransformerPolicy, given: list[list[int]]) -> float:
    """Seconds until all conversations have one reply."""
    _wait()
    begun = time.perf_counter()
    slots = [policy.open(ids[:1], Sampling(number, 1.0)) for number, ids in enumerate(given)]
    for slot, ids in zip(slots, given, strict=True):
        policy.extend(slot, ids[1:])
    answered = 0
    while answered < len(slots):
        replies = policy.ready()
        assert replies, "no reply is under way"
        answered += len(replies)
    _wait()
    seconds = time.perf_counter() - begun
    for slot in slots:
        policy.close(slot)
    return seconds


def generated(model: Any, given: list[list[int]], tokens: int) -> float:
    ids = torch.tensor(given, device=model.device)
    _wait()
    begun = time.perf_counter()
    model.network.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        min_new_tokens=tokens,
        max_new_tokens=tokens,
        do_sample=True,
        top_k=0,
    )
    _wait()
    return time.perf_counter() - begun


def playing(name: str, slots: int, context: int, tokens: int) -> dict[str, Any]:
    """Sampling is what `tokens` more cost than a reply of one token; encoding the conversation is the latter."""
    model = model_class(name)(context=max(2048, context + 2 * tokens))
    on_gpu = model.device.startswith("cuda")
    made_in = _peak(model)
    given, seconds = conversations(slots, context - tokens // 2), {}
    for length in (1, 1 + tokens):
        policy = Fixed(model, slots=slots, reply_tokens=length)
        policy.load(model.initial_adapter(0))
        replied(policy, given)  # Kernels are compiled and graphs recorded.
        seconds[length] = replied(policy, given)
        decoder = type(policy._decoder).__name__
        del policy
        _empty(model)
    played_in = _peak(model)
    plain = [generated(model, given, length) for length in (1, 1, 1 + tokens, 1 + tokens)][1::2]
    config = model.network.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kept = 2 * config.num_hidden_layers * config.num_key_value_heads * head * model.network.dtype.itemsize
    weights = sum(parameter.nbytes for parameter in model.network.get_base_model().parameters())
    # Of an embedding that is not the head as well, a step reads a few rows.
    embedding = model.network.get_input_embeddings().weight.nbytes
    read = weights if config.tie_word_embeddings else weights - embedding
    sampled = slots * tokens / (seconds[1 + tokens] - seconds[1])
    found = {
        "weights_gib": round(weights / 2**30, 2),
        "kept_kib_per_token": round(kept / 1024, 1),
        "decoder": decoder,
        "pass": type(pass_for(model.network, False)).__name__,
        "sampled_per_second": round(sampled),
        "prefilled_per_second": round(slots * len(given[0]) / seconds[1]),
        "generate_sampled_per_second": round(slots * tokens / (plain[1] - plain[0])),
        "generate_prefilled_per_second": round(slots * len(given[0]) / plain[0]),
        "gib_to_make": made_in,
        "gib_to_play": played_in,
    }
    if on_gpu:
        limit = slots * bandwidth() / (read + slots * context * kept)
        found |= {"limit_of_memory_per_second": round(limit), "share_of_limit": round(sampled / limit, 3)}
    return found


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _empty(model: Any) -> None:
    if model.device.startswith("cuda"):
        gc.collect()
        torch.cuda.empty_cache()


def _peak(model: Any) -> float | None:
    """GiB that were reserved at most since the last call."""
    if not model.device.startswith("cuda"):
        return None
    peak = round(torch.cuda.max_memory_reserved() / 2**30, 1)
    torch.cuda.reset_peak_memory_stats()
    return peak


def learning(name: str, given: argparse.Namespace) -> dict[str, Any]:
    command = [
        sys.executable,
        str(HERE / "learning.py"),
        "--model",
        name,
        "--repeats",
        "1",
        "--ways",
        "packed",
        "trainer",
    ]
    command += ["--trajectories", str(given.trajectories), "--tokens", str(given.tokens), "--batch", "8"]
    command += ["--trainer-rows", str(given.trainer_rows)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learning.json"
        _output([*command, "--output", str(path)])
        found = json.loads(path.read_text())
    ways = found["ways"]
    return {
        "learned_per_second": ways["packed"]["tokens_per_second"],
        "share_of_matrix_rate": ways["packed"]["share_of_matrix_rate"],
        "trainer_learned_per_second": ways["trainer"]["tokens_per_second"],
        "gib_to_learn": found["reserved_gib"].get("packed"),
        "trainer_gib": found["reserved_gib"].get("trainer"),
        "likeness_to_trainer": next(iter(found["likeness_to_packed"]["trainer"].values())),
    }


def _output(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {done.returncode}")
    return done.stdout


def hours(one: dict[str, Any], learned: str) -> float:
    playing = PROTOCOL["prefilled"] / one["prefilled_per_second"] + PROTOCOL["sampled"] / one["sampled_per_second"]
    return (playing + PROTOCOL[learned] / one["learned_per_second"]) / 3600


def paths(found: dict[str, Any]) -> Rows:
    yield "", "weights (GiB)", "keys and values per token (KiB)", "plays through", "learns through"
    for name, one in found.items():
        yield name, one["weights_gib"], one["kept_kib_per_token"], f"`{one['decoder']}`", f"`{one['pass']}`"


def played(found: dict[str, Any]) -> Rows:
    yield "", "sampled/s", "of the memory's limit", "`generate`", "times", "prefilled/s", "`generate`", "memory (GiB)"
    for name, one in found.items():
        share = f"{one['share_of_limit']:.0%}" if "share_of_limit" in one else ""
        times = round(one["sampled_per_second"] / one["generate_sampled_per_second"], 1)
        prefilled = one["prefilled_per_second"], one["generate_prefilled_per_second"]
        yield (
            name,
            one["sampled_per_second"],
            share,
            one["generate_sampled_per_second"],
            times,
            *prefilled,
            one["gib_to_play"],
        )


def learned(found: dict[str, Any]) -> Rows:
    yield "", "learned/s", "of the matrix rate", "Trainer", "times", "memory (GiB)", "Trainer's memory"
    for name, one in found.items():
        own, other = one["learned_per_second"], one["trainer_learned_per_second"]
        memory = one["gib_to_learn"], one["trainer_gib"]
        yield name, own, f"{one['share_of_matrix_rate']:.0%}", other, round(own / other, 1), *memory


def protocol(found: dict[str, Any]) -> Rows:
    yield "hours of twenty rounds", "200 demonstrations per site", "6,284 in all"
    for name, one in found.items():
        yield name, round(hours(one, "learned"), 2), round(hours(one, "learned_6284"), 2)


def tables(found: dict[str, Any]) -> Iterator[str]:
    whole = {name: one for name, one in found.items() if "learned_per_second" in one}
    for heading, rows in (("Paths", paths), ("Playing", played)):
        yield f"### {heading}\n\n{markdown(rows(found))}\n"
    for heading, rows in (("Learning", learned), ("The paper's protocol", protocol)):
        if whole:
            yield f"### {heading}\n\n{markdown(rows(whole))}\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES), metavar="NAME")
    options.add_argument("--slots", type=int, default=256)
    options.add_argument(
        "--context", type=int, default=600, help="tokens of a conversation, half of the reply included"
    )
    options.add_argument("--reply-tokens", type=int, default=32)
    options.add_argument("--trajectories", type=int, default=32)
    options.add_argument("--tokens", type=int, default=1024, help="longest trajectory that is learned")
    options.add_argument("--trainer-rows", type=int, default=4, help="rows that the Trainer takes at once")
    options.add_argument("--without-learning", action="store_true")
    options.add_argument("--playing", choices=list(SHAPES), metavar="NAME", help="measure playing alone, print JSON")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    if given.playing:
        print(json.dumps(playing(given.playing, given.slots, given.context, given.reply_tokens)))
        return
    found: dict[str, Any] = {}
    for name in given.shapes:
        sizes = [
            "--slots",
            str(given.slots),
            "--context",
            str(given.context),
            "--reply-tokens",
            str(given.reply_tokens),
        ]
        found[name] = json.loads(_output([sys.executable, __file__, "--playing", name, *sizes]).splitlines()[-1])
        if not given.without_learning:
            found[name] |= learning(name, given)
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
        if given.out:
            given.out.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(tables(found)))


if __name__ == "__main__":
    main()
