"""An evaluator that other people wrote asks a served agent: Inspect, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedse
from fedse.experiments.options import Experiment
from other_packages import environment_with

openai = pytest.importorskip("openai")

TASK = """
import json
from pathlib import Path
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message

@task
def turns():
    samples = [Sample(input=seen, target=said) for seen, said in json.loads(Path("samples.json").read_text())]
    return Task(dataset=samples, solver=[system_message("The rules."), generate()], scorer=includes())
"""
READ = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log
log = read_eval_log(list_eval_logs("logs")[0])
accuracy = log.results.scores[0].metrics["accuracy"].value if log.results else None
print(json.dumps({"status": log.status, "accuracy": accuracy, "samples": len(log.samples or [])}))
"""


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_inspect_hears_what_the_agent_says(tmp_path: Path, table_experiment: type[Experiment]) -> None:
    python = environment_with("inspect_ai", "openai", folder=tmp_path / "environment")
    run = fedse.run(table_experiment(), tmp_path).folder
    command = [sys.executable, "-m", "fedse", "serve", str(run), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as server:
        try:
            assert server.stdout
            url = [server.stdout.readline(), server.stdout.readline()][1].split()[3]
            client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)

            def said(seen: str) -> str:
                messages = [{"role": "system", "content": "The rules."}, {"role": "user", "content": seen}]
                done = client.chat.completions.create(model="table@2", messages=messages, temperature=0)
                return str(done.choices[0].message.content)

            turns = [f"a junction {number}" for number in range(3)]
            samples = [[seen, said(seen)] for seen in turns] + [["a wall", "something else"]]
            (tmp_path / "samples.json").write_text(json.dumps(samples))
            (tmp_path / "task.py").write_text(TASK)
            settings = ["--model", "openai-api/fedse/table@2", "--temperature", "0", "--max-tokens", "200"]
            asked = subprocess.run(
                [str(python.with_name("inspect")), "eval", "task.py", *settings, "--display", "none"],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": "", "FEDSE_BASE_URL": url, "FEDSE_API_KEY": "none"},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert asked.returncode == 0, asked.stdout + asked.stderr
        finally:
            server.terminate()
    read = subprocess.run([str(python), "-c", READ], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert read.returncode == 0, read.stderr
    assert json.loads(read.stdout) == {"status": "success", "accuracy": 0.75, "samples": 4}
