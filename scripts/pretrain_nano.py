"""Make the base model `nano` that ships with fedse: a small Llama that knows four worlds and errs in certain situations.

    python scripts/pretrain_nano.py corpus build/nano           # worlds -> tokenizer and token ids (needs fedse, no GPU)
    python scripts/pretrain_nano.py train build/nano OUT        # token ids -> model (needs torch and transformers only)

The corpus is play by the imperfect player of `nano_player.py`. Training tasks only, of another pool than the one experiments
explore, and none whose solution reads like that of a validation or test task.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

SEED = 20261116
VOCABULARY = 2048
CONTEXT = 640
BABYAI_LEVELS = [
    "OpenDoorsOrderN4Debug",
    "Pickup",
    "PutNextLocalS6N4",
    "PutNextS7N4Carrying",
    "UnlockLocalDist",
    "KeyInBox",
    "FindObjS7",
]
SHARED = {"rules": "bare", "observation_length": "brief"}
WORLDS: dict[str, dict[str, Any]] = {
    "babyai": {**SHARED, "shortest": 4, "longest": 5, "turn_limit": 5, "levels": BABYAI_LEVELS},
    "webshop": {**SHARED, "turn_limit": 5},
    "textcraft": {**SHARED, "shallowest": 2, "deepest": 2, "turn_limit": 4},
    "maze": {**SHARED, "shortest": 4, "longest": 6, "turn_limit": 6},
}
"""As in the recipes."""
TASKS = {"babyai": 3000, "webshop": 800, "textcraft": 6000, "maze": 8000}
EPISODES = {"babyai": 36_000, "webshop": 36_000, "textcraft": 36_000, "maze": 36_000}
OTHER_WORDS = 0.6
"""Share of episodes in which the words that the agent repeats are made up."""
WORD = r"\b[a-z]{3,}\b"
SYLLABLES = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sk sl sm sn sp st sw t th tr tw v w",
    "a e i o u a e i o u ai ea ee ie oa oo ou",
    "b ck d el en er ff g ge in ke ld le ll lt ly m mp n nd ne ng nk nt on p r rd rk rn rt se sh sk ss st t te th ve y",
)
"""What the words begin with, what stands in the middle, how they end."""
SPECIALS = ["<|pad|>", "<|end|>", "<|user|>", "<|agent|>"]
WIDTH, INNER, LAYERS, HEADS, KEY_HEADS = 192, 512, 4, 6, 2
STEPS, ROWS, RATE, WARM_UP = 36_000, 24, 2e-3, 200
WORLD_TEXT = 0.1
"""Weight of the loss on what the world says, beside 1 for what the agent says."""


def corpus(folder: Path) -> None:
    """Play, train the tokenizer on what was said, and store each conversation as token ids."""
    from fedse.models.chat import ACCEPTANCE, TemplateChat

    folder.mkdir(parents=True, exist_ok=True)
    with multiprocessing.Pool() as pool:
        conversations = [item for played in pool.map(conversations_in, WORLDS, 1) for item in played]
    tokenizer = train_tokenizer([text for item in conversations for text in item] + [ACCEPTANCE])
    tokenizer.save_pretrained(folder / "tokenizer")
    chat = TemplateChat(tokenizer, "nano")
    ids: list[int] = []
    said_by_agent: list[bool] = []
    lengths = []
    for rules, *turns in conversations:
        one = chat.opening(rules)
        by_agent = [False] * len(one)
        for observation, reply in zip(turns[::2], turns[1::2], strict=True):
            for piece, agent in ((chat.turn(observation), False), (chat.reply(reply), True)):
                one += piece
                by_agent += [agent] * len(piece)
        ids += one[:CONTEXT]
        said_by_agent += by_agent[:CONTEXT]
        lengths.append(min(len(one), CONTEXT))
    np.savez_compressed(
        folder / "corpus.npz",
        ids=np.array(ids, dtype=np.uint16),
        agent=np.packbits(said_by_agent),
        lengths=np.array(lengths, dtype=np.uint16),
    )
    digest = hashlib.sha256(np.array(ids, dtype=np.uint16).tobytes()).hexdigest()
    print(
        f"{len(lengths):,} conversations, {len(ids):,} tokens, longest {max(lengths)}, mean {np.mean(lengths):.0f}, "
        f"sha256 {digest}"
    )


def conversations_in(name: str) -> list[list[str]]:
    """The episodes of a world, each with the rules first."""
    from nano_player import play

    from fedse.plugins import resolve

    kind = resolve("world", name)

    def solution(world: Any, task: Any) -> tuple[str, ...]:
        return tuple(play(world, task.id, lambda: 0.0)[0])

    tested = kind(**WORLDS[name])
    held_out = {solution(tested, task) for split in ("validation", "test") for task in tested.tasks(split)}
    world = kind(**WORLDS[name], train_tasks=TASKS[name], pool=1)
    tasks = [task.id for task in world.tasks("train") if solution(world, task) not in held_out]
    said = [conversation(world, name, tasks, number) for number in range(EPISODES[name])]
    print(
        f"{name}: {TASKS[name] - len(tasks)} tasks left out, whose solution reads like one of validation or test",
        flush=True,
    )
    return [[world.rules, *one] for one in said if tuple(one) not in held_out]


def conversation(world: Any, name: str, tasks: list[str], number: int) -> list[str]:
    """Observation and reply in turn, of one episode by the imperfect player."""
    from nano_player import play

    from fedse.seeds import generator

    random = generator(SEED, "nano", name, number)
    said, _ = play(world, tasks[int(random.integers(len(tasks)))], random.random)
    return said if random.random() >= OTHER_WORDS else with_other_words(world.rules, said, random)


def with_other_words(rules: str, said: list[str], random: np.random.Generator) -> list[str]:
    """The same episode with made-up words for those the agent repeats: to play it, one has to copy what one reads."""
    read = set(re.findall(WORD, " ".join(said[::2])))
    told = set(re.findall(WORD, " ".join(said[1::2])))
    names = sorted((read & told) - set(re.findall(WORD, rules)))
    begin, middle, end = (pieces.split() for pieces in SYLLABLES)
    other = {name: "".join(random.choice(pieces) for pieces in (begin, middle, end)) for name in names}

    def replaced(found: re.Match[str]) -> str:
        word = other.get(found[0].lower(), found[0])
        return word.capitalize() if found[0][0].isupper() else word

    return [re.sub(r"\b[A-Za-z][a-z]{2,}\b", replaced, text) for text in said]


def train_tokenizer(texts: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from fedse.models.tiny import TEMPLATE

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=SPECIALS[0],
        eos_token=SPECIALS[1],
        additional_special_tokens=SPECIALS[2:],
        model_max_length=CONTEXT,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def train(folder: Path, target: Path) -> None:
    """Next-token prediction on rows that are filled with whole conversations, each attending to itself only."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    rows = packed_rows(folder / "corpus.npz")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config).to(device)
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}, {len(rows['ids']):,} rows", flush=True
    )
    held = {name: torch.from_numpy(array).to(device) for name, array in rows.items()}
    rate = torch.tensor(RATE, device=device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True, capturable=device == "cuda"
    )
    chosen = torch.zeros(ROWS, dtype=torch.long, device=device)
    loss = torch.zeros((), device=device)
    causal = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool, device=device).tril()

    def step() -> None:
        ids, segment, position, weight = (held[name][chosen] for name in ("ids", "segment", "position", "weight"))
        mask = ((segment[:, :, None] == segment[:, None, :]) & causal)[:, None]
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda", cache_enabled=False):
            logits = model(input_ids=ids, attention_mask=mask, position_ids=position, use_cache=False).logits
        each = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        )
        wanted = weight[:, 1:].flatten()
        total = (each * wanted).sum() / wanted.sum()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        loss.copy_(total.detach())

    random = np.random.default_rng(SEED)
    order = np.concatenate([random.permutation(len(rows["ids"])) for _ in range(1 + STEPS * ROWS // len(rows["ids"]))])
    run_step = step
    began = time.time()
    for number in range(STEPS):
        chosen.copy_(torch.from_numpy(order[number * ROWS : (number + 1) * ROWS]))
        rate.fill_(learning_rate(number))
        if number == 3 and device == "cuda":
            run_step = recorded(step, optimiser)
        optimiser.zero_grad(set_to_none=run_step is step)
        run_step()
        if number % 250 == 0 or number == STEPS - 1:
            print(f"step {number}/{STEPS}  loss {loss.item():.4f}  {time.time() - began:.0f} s", flush=True)
        if (number + 1) % 2000 == 0 or number == STEPS - 1:
            save(model, tokenizer, target, number + 1, loss.item())


def learning_rate(step: int) -> float:
    """Linear warm-up, then half a cosine."""
    if step < WARM_UP:
        return RATE * (step + 1) / WARM_UP
    return RATE * 0.5 * (1 + float(np.cos(np.pi * (step - WARM_UP) / (STEPS - WARM_UP))))


def recorded(step: Any, optimiser: Any) -> Any:
    """The same step as one CUDA graph: a network this small is otherwise limited by launching its kernels."""
    import torch

    graph = torch.cuda.CUDAGraph()
    optimiser.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def packed_rows(corpus: Path) -> dict[str, np.ndarray]:
    """Rows of `CONTEXT` tokens, each filled with the conversations that come next and fit."""
    with np.load(corpus) as stored:
        ids, lengths = stored["ids"].astype(np.int64), stored["lengths"].astype(np.int64)
        agent = np.unpackbits(stored["agent"])[: len(ids)].astype(bool)
    starts = np.cumsum(lengths) - lengths
    open_rows: list[list[int]] = []
    full: list[list[int]] = []
    space: list[int] = []
    for number in np.random.default_rng(SEED).permutation(len(lengths)):
        length = int(lengths[number])
        fitting = [index for index, free in enumerate(space) if free >= length]
        if fitting:
            index = min(fitting, key=lambda i: space[i])
            open_rows[index].append(int(number))
            space[index] -= length
        else:
            open_rows.append([int(number)])
            space.append(CONTEXT - length)
        if len(open_rows) > 32:
            fullest = min(range(len(space)), key=lambda i: space[i])
            full.append(open_rows.pop(fullest))
            space.pop(fullest)
    full += open_rows
    rows = {
        "ids": np.zeros((len(full), CONTEXT), dtype=np.int64),
        "segment": np.zeros((len(full), CONTEXT), dtype=np.int64),
        "position": np.zeros((len(full), CONTEXT), dtype=np.int64),
        "weight": np.zeros((len(full), CONTEXT), dtype=np.float32),
    }
    for row, numbers in enumerate(full):
        at = 0
        for place, number in enumerate(numbers, start=1):
            begin, length = starts[number], int(lengths[number])
            here = slice(at, at + length)
            rows["ids"][row, here] = ids[begin : begin + length]
            rows["segment"][row, here] = place
            rows["position"][row, here] = np.arange(length)
            rows["weight"][row, here] = np.where(agent[begin : begin + length], 1.0, WORLD_TEXT)
            rows["weight"][row, at] = 0.0
            at += length
    return rows


def save(model: Any, tokenizer: Any, target: Path, steps: int, loss: float) -> None:
    import copy

    import torch

    target.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to("cpu", torch.bfloat16).save_pretrained(target)
    tokenizer.save_pretrained(target)
    weights = (target / "model.safetensors").read_bytes()
    summary = {
        "steps": steps,
        "loss": round(loss, 4),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "bytes": len(weights),
    }
    (target / "pretraining.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(summary, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages = parser.add_subparsers(dest="stage", required=True)
    first = stages.add_parser("corpus")
    first.add_argument("folder", type=Path)
    second = stages.add_parser("train")
    second.add_argument("folder", type=Path)
    second.add_argument("target", type=Path)
    chosen = parser.parse_args()
    if chosen.stage == "corpus":
        corpus(chosen.folder)
    else:
        train(chosen.folder, chosen.target)


if __name__ == "__main__":
    main()
