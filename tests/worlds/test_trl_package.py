"""TRL's own GRPOTrainer plays our world through `as_tools`: one step of training of a tiny model. What the model would say
is scripted, since a model of this size calls no tools; templates, parsing, tool calls, resets and rewards are TRL's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from other_packages import installed_beside

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1200)]
# What TRL needs beyond the environment of the tests, by hand: its requirements would bring a second torch.
PACKAGES = (
    "trl==1.16.0",
    *("datasets", "dill", "multiprocess", "xxhash", "pandas", "python-dateutil", "pytz", "tzdata"),
    *("aiohttp", "aiosignal", "frozenlist", "multidict", "yarl", "propcache", "attrs", "aiohappyeyeballs"),
)
PROGRAM = r"""
import json, sys
from pathlib import Path

import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from fedse.worlds import as_tools, task_rows
from fedse.worlds.maze import Maze

# A token for every byte.
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
bytewise = Tokenizer(models.BPE(vocab={sign: number for number, sign in enumerate(letters)}, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|im_end|>", pad_token="<|endoftext|>")
tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"])
tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
model = Qwen3ForCausalLM(
    Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=16384,
    )
)

rows = task_rows("maze", "train")[:2]
solutions = {}
for row in rows:
    world = Maze()
    first, _ = world.reset(options={"task": row["task"]})
    solutions[first] = []
    over = False
    while not over:
        solutions[first].append(world.expert()[1])
        over = world.step(solutions[first][-1])[2]


class Scripted(GRPOTrainer):
    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        said = []
        for number, ids in enumerate(prompt_ids):
            text = self.processing_class.decode(ids)
            (actions,) = [own for first, own in solutions.items() if first in text]
            calls = text.count('<tool_call>\n{"name": "act", "arguments": {"action"')
            # The first of every two rollouts of a task solves it, the second gives up.
            if calls == len(actions) or (calls == 0 and number % 2):
                reply = "I am done."
            else:
                call = {"name": "act", "arguments": {"action": actions[calls]}}
                reply = "<tool_call>\n" + json.dumps(call) + "\n</tool_call>"
            said.append(self.processing_class(reply + "<|im_end|>")["input_ids"])
        return said, None


settings = GRPOConfig(
    output_dir=sys.argv[1], max_steps=1, per_device_train_batch_size=4, num_generations=2, max_completion_length=6000,
    report_to="none", use_cpu=True, logging_steps=1, bf16=False, max_tool_calling_iterations=40, save_strategy="no",
    chat_template_kwargs={"enable_thinking": False},
)
trainer = Scripted(
    model=model, processing_class=tokenizer, args=settings, environment_factory=as_tools("maze"),
    train_dataset=Dataset.from_list(rows),
)
trainer.train()
told = trainer.state.log_history[0]
print(json.dumps({"log": told, "rewards": [each.get_reward() for each in trainer.environments],
                  "calls": sum(map(len, solutions.values()))}))
"""


def test_trl_trains_in_our_world(tmp_path: Path) -> None:
    site = installed_beside(*PACKAGES, folder=tmp_path / "site")
    (tmp_path / "program.py").write_text(PROGRAM)
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(site)])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "program.py", "out"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rewards"] == [1.0, 0.0, 1.0, 0.0]
    assert told["log"]["rewards/Maze/mean"] == 0.5 and told["log"]["tools/failure_frequency"] == 0.0
    assert told["log"]["tools/call_frequency"] == told["calls"] / 4
    assert told["log"]["grad_norm"] > 0
