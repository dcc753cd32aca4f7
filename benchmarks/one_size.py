"""What one shape costs to play and to learn; `sizes.py` starts this once for each shape and reads what it prints.

Each part is printed as soon as it is measured. One that fails prints its error, and the next ones are tried.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from learning import Way, WithTrainer, dense_operations, in_turn, likeness, matrix_rate, needed_operations
from learning import one_after_another as apart
from learning_work import random_trajectories
from rollouts_gpu import bandwidth
from shapes import model_class
from static_step import static_step

from fedse.learners.imitation import Imitation
from fedse.networks.decoding.choosing import window_of
from fedse.networks.training.passes import pass_for
from fedse.policies.transformer import TransformerPolicy
from fedse.types import Sampling

FOUND = "found "
"""How a line with results begins; libraries print others."""
NEVER = -1
"""No token has this number."""
RATE = 2e-4


class Fixed(TransformerPolicy):
    """No reply ends before its longest."""

    encoded = 0.0
    """When the conversations were encoded, and each had its first token."""

    def make_decoder(self) -> Any:
        self.model.chat.end_ids = frozenset({NEVER})
        decoder: Any = super().make_decoder()
        begin = decoder.begin

        def timed(due: Sequence[Any]) -> None:
            begin(due)
            wait()
            self.encoded = time.perf_counter()

        decoder.begin = timed
        return decoder


class Stamp:
    """Notes when `generate` has encoded the conversations: it comes by with its first logits."""

    seconds: float | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        del input_ids
        if self.seconds is None:
            wait()
            self.seconds = time.perf_counter()
        return scores


Taken = tuple[float, float]
"""Seconds until all conversations are encoded, and from then on until all have their replies."""


def conversations(slots: int, context: int) -> list[list[int]]:
    """All begin with the same token, as conversations do, and differ from then on."""
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 250, (slots, context), generator=random)
    ids[:, 0] = 0
    return ids.tolist()  # type: ignore[no-any-return]


def replied(policy: Fixed, given: Sequence[Sequence[int]]) -> Taken:
    wait()
    begun = time.perf_counter()
    slots = [policy.open(ids[:1], Sampling(number, 1.0)) for number, ids in enumerate(given)]
    for slot, ids in zip(slots, given, strict=True):
        policy.extend(slot, ids[1:])
    answered = 0
    while answered < len(slots):
        replies = policy.ready()
        assert replies, "no reply is under way"
        answered += len(replies)
    wait()
    ended = time.perf_counter()
    for slot in slots:
        policy.close(slot)
    return policy.encoded - begun, ended - policy.encoded


def generated(model: Any, given: Sequence[Sequence[int]], tokens: int) -> Taken:
    ids, stamp = torch.tensor(given, device=model.device), Stamp()
    wait()
    begun = time.perf_counter()
    model.network.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        min_new_tokens=tokens,
        max_new_tokens=tokens,
        do_sample=True,
        top_k=0,
        pad_token_id=0,
        logits_processor=[stamp],
    )
    wait()
    assert stamp.seconds is not None
    return stamp.seconds - begun, time.perf_counter() - stamp.seconds


def read_by_a_step(model: Any, slots: int, context: int) -> dict[str, int]:
    """Bytes of the weights, of a token's keys and values, and those that a step of all slots must read at least."""
    config, item = model.network.config.get_text_config(), model.network.dtype.itemsize
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kept = 2 * config.num_key_value_heads * head * item
    named = list(model.network.named_parameters())
    weights = sum(parameter.nbytes for name, parameter in named if ".lora_" not in name)
    adapter = sum(parameter.numel() * item for name, parameter in named if ".lora_" in name)
    # Of an embedding that is not the head as well, a step reads a few rows.
    rows = 0 if config.tie_word_embeddings else model.network.get_input_embeddings().weight.nbytes
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    window = getattr(config, "sliding_window", None) or context
    seen = sum(min(context, window) if kind == "sliding_attention" else context for kind in kinds)
    return {
        "weights": weights,
        "kept": kept * config.num_hidden_layers,
        "step": weights + adapter - rows + slots * seen * kept,
    }


def playing(model: Any, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    slots, tokens = given.slots, given.reply_tokens
    made_in, talks = peak(model), conversations(slots, given.context - tokens // 2)
    policy = Fixed(model, slots=slots, reply_tokens=tokens)
    begun = time.perf_counter()
    policy.load(model.initial_adapter(0))
    replied(policy, talks[: given.warm_up])  # Kernels are compiled and graphs recorded.
    warmed = time.perf_counter() - begun
    encoding, sampling = replied(policy, talks)
    drawn, encoded = slots * (tokens - 1), slots * len(talks[0])
    read = read_by_a_step(model, slots, given.context)
    found = {
        "weights_gib": round(read["weights"] / 2**30, 2),
        "kept_kib_per_token": round(read["kept"] / 1024, 1),
        "decoder": type(policy._decoder).__name__,
        "slots": slots,
        "sampled_per_second": round(drawn / sampling),
        "milliseconds_per_step": round(1000 * sampling / (tokens - 1), 2),
        "prefilled_per_second": round(encoded / encoding),
        "warm_up_seconds": round(warmed, 1),
        "gib_to_make": made_in,
        "gib_to_play": peak(model),
    }
    del policy
    empty(model)
    if on_gpu(model):
        limit = slots * bandwidth() / read["step"]
        found |= {
            "limit_of_memory_per_second": round(limit),
            "share_of_limit": round(drawn / sampling / limit, 3),
            "card": torch.cuda.get_device_name(),
        }
    yield {**found, "pass": type(pass_for(model.network, False)).__name__}
    empty(model)
    generated(model, talks[: given.warm_up], 2)
    encoding, sampling = generated(model, talks, tokens)
    yield {
        "generate_sampled_per_second": round(drawn / sampling),
        "generate_prefilled_per_second": round(encoded / encoding),
        "generate_gib": peak(model),
    }


def learning(model: Any, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The learner, and then peft with the Trainer, on the same trajectories."""
    vocabulary = model.network.get_base_model().config.vocab_size
    opening = min(200, given.tokens // 4)
    lesson = random_trajectories(given.trajectories, given.tokens // 2, given.tokens, opening, vocabulary)
    rounds = {"random": lesson}
    tokens, rate = sum(len(item.token_ids) for item in lesson), matrix_rate(model.device)
    operations = needed_operations(model, rounds)
    settings = {"epochs": 1, "batch_size": given.batch, "learning_rate": RATE, "checkpointing": given.checkpointing}
    own = Way(lambda: Imitation(model, **settings), model, rounds)
    reserved = repeated(model, own)
    found = own.report(tokens, operations, rate)
    # An opening that all trajectories share is in the usual count of operations, and computed once for a batch.
    done = operations - own.shared * tokens * dense_operations(model)
    yield {
        "learned_per_second": found["tokens_per_second"],
        "share_of_matrix_rate": found["share_of_matrix_rate"],
        "share_of_matrix_rate_computed": round(done / found["seconds"] / rate, 4),
        "matrix_rate_tflops": round(rate / 1e12, 1),
        "first_lesson_seconds": found["first_seconds"],
        "gib_to_learn": reserved,
    }
    rows = given.trainer_rows
    while (beside := with_trainer(model, given, rounds, rows)) is None:
        rows //= 2
        empty(model)
    trainer, reserved = beside
    # Setting the Trainer up, which it does anew for each lesson, is left out: lessons are short here.
    seconds = trainer.report(tokens, operations, rate)["training_seconds"]
    start = model.initial_adapter(0)
    yield {
        "trainer_learned_per_second": round(tokens / seconds),
        "trainer_rows": rows,
        "trainer_gib": reserved,
        "likeness_to_trainer": round(likeness(trainer.adapters["random"], own.adapters["random"], start), 5),
    }


def with_trainer(
    model: Any, given: argparse.Namespace, rounds: dict[str, Any], rows: int
) -> tuple[Way, float | None] | None:
    """None: so many rows at once do not fit."""
    settings = argparse.Namespace(batch=given.batch, rate=RATE, trainer_rows=rows)
    way = Way(lambda: WithTrainer(model, settings), model, rounds)
    try:
        return way, repeated(model, way)
    except torch.OutOfMemoryError:
        if rows == 1:
            raise
        return None


def repeated(model: Any, way: Way) -> float | None:
    """A lesson that warms up and one that counts; the GiB that were reserved at most."""
    return (apart if on_gpu(model) else in_turn)({"way": way}, 1).get("way")


def static(model: Any, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if window_of(model):
        return  # transformers' static cache keeps no more than the window there, and wants masks of its own.
    talks = conversations(given.slots, given.context - given.reply_tokens // 2)
    empty(model)
    peak(model)  # What came before is not counted.
    seconds = static_step(model, talks, given.reply_tokens)
    yield {"static_sampled_per_second": round(given.slots / seconds), "static_gib": peak(model)}


def on_gpu(model: Any) -> bool:
    return bool(model.device.startswith("cuda"))


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def empty(model: Any) -> None:
    gc.collect()
    if on_gpu(model):
        torch.cuda.empty_cache()


def peak(model: Any) -> float | None:
    """GiB that were reserved at most since the last call."""
    if not on_gpu(model):
        return None
    reserved = round(torch.cuda.max_memory_reserved() / 2**30, 1)
    torch.cuda.reset_peak_memory_stats()
    return reserved


PARTS: dict[str, Callable[[Any, argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "playing": playing,
    "learning": learning,
    "static": static,
}
"""The step with a static cache comes last: a recording that fails may leave the device unusable."""


def measured(model: Any, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in given.parts:
        begun = time.perf_counter()
        try:
            yield from PARTS[name](model, given)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0]
            yield {f"{name}_error": f"{type(error).__name__}: {reason}"[:300]}
        yield {f"{name}_took_seconds": round(time.perf_counter() - begun, 1)}
        empty(model)


def add_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("--slots", type=int, default=256)
    options.add_argument(
        "--context", type=int, default=600, help="tokens of a conversation, half of the reply included"
    )
    options.add_argument("--reply-tokens", type=int, default=64)
    options.add_argument("--warm-up", type=int, default=8, help="conversations that are replied to before")
    options.add_argument("--trajectories", type=int, default=32)
    options.add_argument("--tokens", type=int, default=1024, help="longest trajectory that is learned")
    options.add_argument("--batch", type=int, default=8, help="trajectories behind one step")
    options.add_argument("--checkpointing", action="store_true", help="of the learner")
    options.add_argument(
        "--trainer-rows", type=int, default=4, help="rows that the Trainer takes at once; half, if they do not fit"
    )
    options.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("shape")
    add_options(options)
    given = options.parse_args()
    sys.stdin.readline()  # What is imported is imported while the shape before is measured.
    begun = time.perf_counter()
    model = model_class(given.shape)(context=max(2048, given.context + 2 * given.reply_tokens))
    print(FOUND + json.dumps({"made_in_seconds": round(time.perf_counter() - begun, 1)}), flush=True)
    for part in measured(model, given):
        print(FOUND + json.dumps(part), flush=True)


if __name__ == "__main__":
    main()
