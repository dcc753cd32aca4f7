"""The house keeps its order: arrows point up only, torch stays in its rooms, importing fedse is light."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from fedse import protocols
from fedse.plugins.shipped import KNOWN
from sources import SOURCE, imports, modules, tree

# A module sees only the lines above its own, and its own room.
LAYERS = [
    {"__init__", "types", "events", "conversation", "errors", "seeds", "stopwatch", "visible"},
    {"protocols", "storage"},
    {"plugins"},
    {"adapters"},
    {"networks"},
    {"worlds", "models", "servers", "experience", "runs", "privacy", "objectives"},
    {"fitting"},
    {"policies", "rollouts", "learners", "aggregators"},
    {"evaluation", "starts", "filters"},
    {"clients"},
    {"curricula", "rescues", "judges", "mixes", "probes", "trackers"},
    {"federation"},
    {"engines"},
    {"experiments"},
    {"sweeps", "apps", "merging", "page", "serving", "audits"},
    {"cli"},
    {"__main__"},
]
TORCH_AT_IMPORT = {
    "fitting/loop.py",
    "fitting/private_loop.py",
    "networks/attention_backends.py",
    "networks/decoding/graph_recorder.py",
    "networks/decoding/graphed.py",
    "networks/decoding/graphed_network.py",
    "networks/decoding/llama_forward.py",
    "networks/decoding/network_forward.py",
    "networks/decoding/packed.py",
    "networks/decoding/packed_llama.py",
    "networks/decoding/paged_cache.py",
    "networks/decoding/product.py",
    "networks/decoding/slot_cache.py",
    "networks/decoding/slot_state.py",
    "networks/decoding/stepwise.py",
    "networks/decoding/triton_attention.py",
    "networks/decoding/triton_kernels.py",
    "networks/llama.py",
    "networks/swap.py",
    "networks/training/attention_kernels.py",
    "networks/training/cross_entropy.py",
    "networks/training/factor_layout.py",
    "networks/training/joint_pass.py",
    "networks/training/layer_operations.py",
    "networks/training/lora_vector.py",
    "networks/training/low_rank.py",
    "networks/training/packed_attention.py",
    "networks/training/packed_llama.py",
    "networks/training/padded_network.py",
    "networks/training/parallel_passes.py",
    "networks/training/pass_graphs.py",
    "networks/training/passes.py",
    "networks/training/row_owners.py",
    "networks/training/triton_operations.py",
    "networks/training/unit_rows.py",
    "networks/training/wanted.py",
}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def layer(name: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if name in names)


def imported(path: Path) -> set[str]:
    """Rooms of fedse that a module imports, at its top or inside functions."""
    found = set()
    for node in imports(path):
        if node.module == "fedse":
            found |= {
                alias.name if (SOURCE / alias.name).exists() or (SOURCE / f"{alias.name}.py").exists() else "__init__"
                for alias in node.names
            }
        elif (node.module or "").startswith("fedse."):
            found.add(str(node.module).split(".")[1])
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_up(path: Path) -> None:
    if path == SOURCE / "__init__.py":  # The public names are loaded when they are asked for.
        return
    for other in imported(path) - {room(path)}:
        assert layer(other) < layer(room(path)), f"{path.relative_to(SOURCE)} imports fedse.{other}"


def rooms_of_the_page() -> list[tuple[int, str, str]]:
    """The line of each room, its name, and what it is."""
    page = (SOURCE.parents[1] / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE)
    return [(int(number), name, told) for number, name, told in rows]


def test_the_page_about_the_house_names_every_room_on_its_line() -> None:
    built = [names - {"__init__", "__main__"} for names in LAYERS]
    told: list[set[str]] = [set() for names in built if names]
    for number, name, _ in rooms_of_the_page():
        told[number - 1].add(name)
    assert told == [names for names in built if names]


def test_a_room_is_told_in_one_sentence_without_and() -> None:
    sentence = re.compile(r"[A-Z](?:(?!\band\b)[^.;])+\.")
    assert [told for told in rooms_of_the_page() if not sentence.fullmatch(told[2])] == []


def test_the_page_about_the_house_names_files_classes_and_protocols_that_are_there() -> None:
    page = (SOURCE.parents[1] / "docs/architecture.md").read_text()
    named = re.findall(r"`(\w+/\w+\.py)(?:: ([\w.]+))?`", page)
    assert len(named) > 6
    for path, what in named:
        root = SOURCE if (SOURCE / path).exists() else SOURCE.parents[1]
        assert (root / path).exists(), path
        if what:
            found = importlib.import_module(f"fedse.{path.removesuffix('.py').replace('/', '.')}")
            for name in what.split("."):
                found = getattr(found, name)
    slots = page.partition("## Slots")[2].partition("## Rooms")[0]
    for name in re.findall(r"`([A-Z]\w+)`", slots):
        assert hasattr(protocols, name) or name in {"Client", "Experiment", "Site"}, name


def test_torch_is_imported_at_the_top_of_few_files() -> None:
    heavy = {"torch", "transformers", "peft", "tokenizers"}
    found = set()
    for path in modules():
        for node in tree(path).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            if {name.split(".")[0] for name in names} & heavy:
                found.add(str(path.relative_to(SOURCE)))
    assert found == TORCH_AT_IMPORT


@pytest.mark.slow
def test_every_plug_in_can_be_looked_at_without_torch() -> None:
    program = """
import sys
for blocked in ("torch", "transformers", "peft", "matplotlib", "pyarrow", "openai"):
    sys.modules[blocked] = None
from fedse.plugins import options_of
from fedse.plugins.shipped import KNOWN
for kind, plugins in KNOWN.items():
    for name in plugins:
        options_of(kind, name)
import fedse.cli
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert sum(map(len, KNOWN.values())) > 10


def test_importing_fedse_loads_neither_torch_nor_the_machinery() -> None:
    program = (
        "import sys, fedse; print([n for n in ('torch', 'transformers', 'pydantic', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def needed(path: Path) -> set[str]:
    """Modules of fedse that one imports, at its top, inside functions or for types alone."""
    froms = imports(path)
    return {f"{node.module}.{alias.name}" for node in froms for alias in node.names} | {str(n.module) for n in froms}


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle() -> None:
    """The public names of `fedse`, and those of its packages, are not modules that could be in one."""
    names = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path
        for path in modules()
        if path.name != "__init__.py"
    }
    TopologicalSorter({name: (needed(path) & names.keys()) - {name} for name, path in names.items()}).prepare()


def test_one_file_reads_a_llama() -> None:
    """What a layer or its adapter holds is asked of `networks/llama.py`."""
    inside = re.compile(r"\.(self_attn|mlp|embed_tokens|lora_A\[|active_adapters|base_layer)")
    assert [str(path.relative_to(SOURCE)) for path in modules() if inside.search(path.read_text())] == [
        "networks/llama.py"
    ]


def test_modules_stay_small() -> None:
    assert {str(path): lines for path in modules() if (lines := len(path.read_text().splitlines())) > 400} == {}
