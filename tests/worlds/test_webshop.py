"""The WebShop world: catalogue, goals, pages, reward, splits, experts and every knob."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedse.errors import BadInput
from fedse.types import SPLITS
from fedse.worlds.check import check
from fedse.worlds.reference import ceiling, floor, play_out
from fedse.worlds.webshop import WebShop
from fedse.worlds.webshop.reward import alike, plain_colour, reward, type_factor
from fedse.worlds.webshop.tasks import split_of
from fedse.worlds.webshop.wares import KINDS, OPTIONS

BRIEF = {"rules": "brief", "observation_length": "brief"}


def begin(world: WebShop, task: str) -> str:
    return world.reset(options={"task": task})[0]


def rule_of_four_clicks(world: WebShop) -> float:
    tasks = world.tasks("test")
    return sum(play_out(world, task, lambda _: world.four_clicks()) for task in tasks) / len(tasks)


# The built-in catalogue


def test_the_built_in_words_cannot_be_mistaken_for_each_other() -> None:
    for kind in KINDS:
        for one, other in itertools.combinations(kind.attributes, 2):
            assert not alike(one, other)
    for one, other in itertools.combinations(KINDS, 2):
        assert sum(alike(a, b) for a in one.attributes for b in other.attributes) <= 1
    for values in OPTIONS.values():
        for value, rival in itertools.combinations(values, 2):
            assert not alike(plain_colour(value), plain_colour(rival))


def test_only_the_right_kind_can_be_worth_everything() -> None:
    world = WebShop()
    products = [product for product in world.shop.products if int(product.id[1:]) % 7 == 0]
    for task in world.tasks("test")[:25]:
        goal = world.goal(task.id)
        for product in products:
            if reward(goal, product, dict(goal.options), both_sides=True) == 1:
                assert product.kind == goal.product.kind


@pytest.mark.slow
def test_lookalikes_make_the_rule_of_four_clicks_fail() -> None:
    alone, default, two = WebShop(lookalikes=0), WebShop(), WebShop(lookalikes=2)
    sizes = [len(world.shop.products) for world in (alone, default, two)]
    assert sizes == [750, 1500, 2250]
    rates = [rule_of_four_clicks(world) for world in (alone, default, two)]
    assert rates[0] > 0.9 > 0.65 > rates[1] > rates[2] + 0.1
    ids = [set(world.shop.by_id) for world in (alone, default, two)]
    assert ids[0] < ids[1] < ids[2]
    assert all(alone.shop.by_id[name].title == two.shop.by_id[name].title for name in ids[0])


# Tasks


@pytest.mark.slow
def test_floors_and_ceilings() -> None:
    for options in ({}, BRIEF):
        world = WebShop(**options)
        assert floor(world, world.tasks("test"), repeats=1) < 0.08
        assert all(ceiling(world, world.tasks(split)) == 1 for split in SPLITS)


def test_splits_share_no_product_and_no_wording_even_between_clients() -> None:
    worlds = [WebShop(), WebShop(pool=3, lookalikes=2, part=0.5, mix=0.3, hardness="hard", train_tasks=200, **BRIEF)]
    products: dict[str, set[str]] = {}
    texts: dict[str, set[str]] = {}
    for world, split in itertools.product(worlds, SPLITS):
        assert len(world.tasks(split)) >= 200
        for task in world.tasks(split):
            goal = world.goal(task.id)
            assert split_of(goal.product) == split
            products.setdefault(split, set()).add(goal.product.id)
            texts.setdefault(split, set()).add(goal.product.instruction)
    for found in (products, texts):
        assert not found["train"] & found["test"]
        assert not found["train"] & found["validation"]
        assert not found["validation"] & found["test"]


@pytest.mark.slow
def test_a_task_id_means_the_same_wish_everywhere() -> None:
    world = WebShop()
    assert world.tasks("test")[0].id == PINNED[0]
    assert begin(world, PINNED[0]) == PINNED[1]
    others = [WebShop(pool=2, mix=0.1), WebShop(lookalikes=3), WebShop(rank_noise=0.2), WebShop(part=0.3)]
    for other in others:
        shared = {task.id for task in other.tasks("test")} & {task.id for task in world.tasks("test")}
        assert len(shared) > 150
        for task in sorted(shared)[:40]:
            assert world.goal(task).instruction == other.goal(task).instruction


# Written down once: a change here changes every published number, so `version` must rise with it.
PINNED = (
    "test-P1535-3",
    "Instruction: Find me pump dispenser, hypoallergenic, oat extract body lotion with scent: unscented, and price lower "
    "than 20.00 dollars\nThis is the search page.",
)


@pytest.mark.slow
def test_mix_and_pool_change_the_training_tasks_only() -> None:
    even, skewed, other = WebShop(), WebShop(mix=0.3, mix_seed=1), WebShop(mix=0.3, mix_seed=2)
    counts = [Counter(task.category for task in world.tasks("train")) for world in (even, skewed, other)]
    assert set(counts[0].values()) == {120}
    assert all(sum(count.values()) == 600 for count in counts)
    assert len({tuple(sorted(count.items())) for count in counts}) == 3
    assert max(counts[1].values()) > 200
    assert even.tasks("test") == skewed.tasks("test") == WebShop(pool=1).tasks("test")
    goals = [{task.id for task in WebShop(train_tasks=100, pool=pool).tasks("train")} for pool in (0, 1)]
    assert [len(found) for found in goals] == [100, 100]
    assert len(goals[0] & goals[1]) < 20


@pytest.mark.slow
def test_a_part_of_the_catalogue_keeps_what_evaluation_asks_for() -> None:
    whole, part, other = WebShop(), WebShop(part=0.5), WebShop(part=0.5, part_seed=1)
    sold = [set(world.shop.by_id) for world in (whole, part, other)]
    assert sold[1] < sold[0]
    assert len(sold[1] ^ sold[2]) > 200
    assert {split_of(whole.shop.by_id[name]) for name in sold[0] - sold[1]} == {"train"}
    assert begin(part, PINNED[0]) == PINNED[1]
    with pytest.raises(BadInput, match="lower `train_tasks`"):
        WebShop(part=0.1).tasks("train")


@pytest.mark.slow
def test_hardness_is_what_the_rule_of_four_clicks_solves() -> None:
    for hardness in ("easy", "hard"):
        world = WebShop(hardness=hardness, train_tasks=200)
        for task in world.tasks("train"):
            assert play_out(world, task, lambda _, world=world: world.four_clicks()) is (hardness == "easy")
        assert world.tasks("test") == WebShop().tasks("test")


def test_search_knobs_change_what_is_found() -> None:
    query = "breathable reflective running shoes blue"
    hits = {
        str(options): [hit.id for hit in WebShop(**options).shop.hits(query)]
        for options in ({}, {"indexed": ["title"]}, {"rank_noise": 0.5}, {"k1": 3.0}, {"b": 1.0})
    }
    assert len({tuple(found) for found in hits.values()}) == 5
    blue = WebShop(indexed=["options"]).shop.hits("blue")
    assert blue and all("blue" in hit.options["color"] for hit in blue)


# Play


def test_pages_lead_where_they_say() -> None:
    world = WebShop()
    begin(world, PINNED[0])
    assert world.legal_actions() == [f"search[{PINNED[1].splitlines()[0].removeprefix('Instruction: ')}]"]
    first = world.step("search[body lotion]")[0]
    assert 'Results for "body lotion", page 1 of 5:' in first
    assert first.splitlines()[-1] == "[Next >] [Back to Search]"
    assert world.step("CLICK[ next > ].")[0].splitlines()[-1] == "[< Prev] [Next >] [Back to Search]"
    assert world.step("click[< Prev]")[0] == first
    name = first.splitlines()[2][1:6]
    item = world.step(f"click[{name.lower()}]")[0]
    product = world.shop.by_id[name]
    option, values = next(iter(product.options.items()))
    assert product.title in item and f"{option}: [{values[0]}]" in item
    assert "Features of" in world.step("click[features]")[0]
    assert world.step("click[< prev]")[0] == item
    chosen = world.step(f"click[{values[0]}]")[0]
    assert f"(chosen: {values[0]})" in chosen
    assert world.step("click[back to search]")[0] == PINNED[1]


def test_leaving_a_product_forgets_its_options_and_buying_ends() -> None:
    world = WebShop()
    goal = world.goal(PINNED[0])
    begin(world, PINNED[0])
    world.step(f"search[{goal.product.title}]")
    world.step(f"click[{goal.product.id}]")
    world.step(f"click[{goal.options[0][1]}]")
    world.step("click[< prev]")
    assert "chosen" not in world.step(f"click[{goal.product.id}]")[0]
    observation, score, terminated, truncated, info = world.step("click[buy now]")
    # Three attributes and the price fit, the one option is missing.
    assert (score, terminated, truncated, info["success"]) == (0.8, True, False, False)
    assert observation.endswith("0.80")


def test_nonsense_gets_a_sentence_and_the_page() -> None:
    for options, sentence in (({}, "That does nothing."), (BRIEF, "Not possible here.")):
        world = WebShop(**options)
        page = begin(world, PINNED[0])
        for action in ("", "click[buy now]", "search[]", "buy", "click[p0000]"):
            observation, _, _, _, info = world.step(action)
            assert observation.startswith(sentence) and observation.endswith(page)
            assert info["valid"] is False
    world = WebShop()
    begin(world, PINNED[0])
    observation, _, _, _, info = world.step("search[zzz]")
    assert 'Nothing was found for "zzz".\n[Back to Search]' in observation
    assert info["valid"] is True


def test_a_brief_episode_is_short() -> None:
    world = WebShop(**BRIEF)
    lengths = []
    for task in world.tasks("test"):
        texts, over = [world.rules, begin(world, task.id)], False
        while not over:
            thought, action = world.expert()
            observation, _, over, _, _ = world.step(action)
            texts += [f"Thought: {thought}\nAction: {action}", observation]
        lengths.append(sum(map(len, texts)))
    lengths.sort()
    assert lengths[len(lengths) // 2] < 1_500
    assert lengths[len(lengths) * 9 // 10] < 1_800
    assert len(world.rules) < 320 < len(WebShop().rules)


def test_the_expert_goes_by_what_the_page_shows() -> None:
    reasons: Counter[str] = Counter()
    world = WebShop()
    for task in world.tasks("validation"):
        page, over = begin(world, task.id), False
        goal = world.goal(task.id)
        while not over:
            thought, action = world.expert()
            text = action[action.index("[") + 1 : -1]
            if action.startswith("click"):
                assert f"[{text}]" in page
            else:
                assert set(text.split()) <= set(goal.instruction.lower().replace(",", " ").replace(":", " ").split())
            if "does not come in" in thought:
                reasons["lacking"] += 1
                name, value = thought.removeprefix("It does not come in ").split(",")[0].rsplit(" ", 1)
                assert f"[{value}]" not in page or name not in page
            elif text in world.shop.by_id:
                reasons["open"] += 1
                hit = world.shop.by_id[text]
                assert all(attribute in hit.title.lower() for attribute in goal.product.wanted)
                assert hit.price <= goal.price_limit
            page, _, over, _, _ = world.step(action)
    assert reasons["lacking"] >= 10 and reasons["open"] > 200


def test_the_expert_recovers_from_anywhere() -> None:
    world = WebShop(turn_limit=14)
    for task in world.tasks("test")[:30]:
        begin(world, task.id)
        world.step("search[lamp]")
        for place in (5, 3, -1):
            actions = [action for action in world.legal_actions() if "Buy" not in action]
            world.step(actions[min(place, len(actions) - 1)])
        while True:
            _, _, terminated, truncated, info = world.step(world.expert()[1])
            if terminated or truncated:
                break
        assert info["success"]


# Reward


def test_colours_are_reduced_on_one_side_or_both(tmp_path: Path) -> None:
    path = catalogue(tmp_path, options={"color": ["black2626", "navy blue"]})
    clean, original = (WebShop(mode=mode, products=path) for mode in ("clean", "original"))
    goals = [original.goal(task) for task in ("0", "1")]
    for goal in goals:
        chosen = dict(goal.options)
        assert reward(goal, goal.product, chosen, both_sides=True) == 1
        strange = goal.options[0][1] == "black2626"
        assert reward(goal, goal.product, chosen, both_sides=False) == (0.75 if strange else 1)
    assert clean.shop.by_id["B0"].price == original.shop.by_id["B0"].price


def test_the_type_factor_has_four_values() -> None:
    world = WebShop()
    goal = next(product for product in world.shop.products if product.kind == "olive oil")
    lamp = next(product for product in world.shop.products if product.kind == "desk lamp")
    same = next(product for product in world.shop.products if product.kind == "olive oil" and product is not goal)
    assert type_factor(same, goal) == 1.0
    assert type_factor(lamp, goal) == 0.0
    words = "aa bb cc dd ee ff gg hh ii jj kk ll mm nn oo pp qq rr ss tt"
    wordy = replace(goal, title=words)
    factors = [type_factor(replace(lamp, title=words[: 3 * shared - 1]), wordy) for shared in (1, 3, 5)]
    assert factors == [0.1, 0.5, 1.0]


def catalogue(folder: Path, **changes: Any) -> Path:
    """A file with ten small products in the layout of the original."""
    entry = {
        "asin": "B0", "name": "Soft cotton scarf", "full_description": "Warm.", "small_description": ["Soft to touch"],
        "pricing": [10.0, 20.0], "product_category": "Clothing \u203a Scarves", "category": "fashion", "query": "scarf",
        "options": {"color": ["red", "blue"]}, "attributes": ["soft cotton"], "instruction": "Find me warm soft scarf",
        "instruction_attributes": ["soft", "warm"],
    }  # fmt: skip
    path = folder / "products.json"
    path.write_text(json.dumps([{**entry, **changes, "asin": f"B{number}"} for number in range(10)]))
    return path


def test_a_catalogue_from_a_file(tmp_path: Path) -> None:
    path = catalogue(tmp_path)
    world = WebShop(mode="original", products=path)
    assert len(world.tasks("test")) == 20
    product = world.shop.by_id["B3"]
    assert 10 < product.price < 20 and product.price_tag == "$10.0 to $20.0"
    packed = tmp_path / "products.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [item.title for item in WebShop(products=packed).shop.products] == [product.title] * 10
    for content, message in (("[]", "must hold a list"), ("{", "is not JSON"), ('[{"asin": "B0"}]', "product 0 of")):
        path.write_text(content)
        with pytest.raises(BadInput, match=message):
            WebShop(products=path).tasks("test")
    with pytest.raises(BadInput, match="cannot be read"):
        WebShop(products=tmp_path / "absent.json").tasks("test")


# Original mode


def test_original_speaks_like_the_original() -> None:
    world = WebShop(mode="original")
    first = begin(world, "0")
    assert first.startswith("WebShop [SEP] Instruction: [SEP] Find me ") and first.endswith(" [SEP] Search")
    assert world.step("")[0] == f"Invalid Action.\n\n{first}"
    assert world.step("click[search]")[0] == first
    results = world.step(world.expert()[1])[0]
    assert " [SEP] Back to Search [SEP] Page 1 (Total results: 50) [SEP] Next > [SEP] P" in results
    assert world.step("click[next >]")[0].count("[SEP] < Prev [SEP] Next > [SEP]") == 1
    item = world.step(f"click[{world.step('click[< prev]')[0].split(' [SEP] ')[5]}]")[0]
    assert item.endswith("Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now")
    assert world.step("click[buy now]")[0].startswith("Thank you for shopping with us!")


def test_the_official_numbers(outside_data: Path) -> None:
    files = {
        "products": outside_data / "webshop" / "products_1k.json.gz",
        "ids": outside_data / "official_ids" / "webshop.json",
    }
    world = WebShop(mode="original", **files)
    assert (len(world.tasks("train")), len(world.tasks("test"))) == (3930, 200)
    assert world.goal("6909") and len({task.id for split in SPLITS for task in world.tasks(split)}) == 4340
    with pytest.raises(BadInput, match="no task '6910'"):
        world.goal("6910")
    assert world.goal("6").instruction == (
        "Find me men's shorts with elastic waist, classic fit, short sleeve for gym workout with color: navy, and size: "
        "x-large, and price lower than 50.00 dollars"
    )
    assert rule_of_four_clicks(world) == pytest.approx(0.47, abs=0.02)
    assert ceiling(world, world.tasks("test")) == pytest.approx(0.94, abs=0.02)
    assert ceiling(world, world.tasks("train")[:400]) == 1
    on_first_page = [
        world.goal(task.id).product in world.shop.hits(world.goal(task.id).instruction)[:10]
        for task in world.tasks("test")
    ]
    assert sum(on_first_page) / 200 == pytest.approx(0.885, abs=0.01)


@pytest.mark.slow
def test_the_real_catalogue_in_clean_mode(outside_data: Path) -> None:
    world = WebShop(products=outside_data / "webshop" / "products_1k.json.gz", **BRIEF)
    assert [len(world.tasks(split)) for split in SPLITS] == [600, 210, 210]
    assert all(ceiling(world, world.tasks(split)) == 1 for split in SPLITS)
    products = [{world.goal(task.id).product.id for task in world.tasks(split)} for split in SPLITS]
    assert not products[0] & products[2] and not products[0] & products[1] and not products[1] & products[2]


def test_ids_outside_the_catalogue_are_refused(tmp_path: Path) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text('{"train": [3, 5], "test": [0, 99]}')
    with pytest.raises(BadInput, match="official id 99"):
        WebShop(mode="original", products=catalogue(tmp_path), ids=ids).tasks("train")
    ids.write_text('{"train": [3, 5], "test": [0, 4]}')
    world = WebShop(mode="original", products=catalogue(tmp_path), ids=ids)
    assert [task.id for task in world.tasks("test")] == ["0", "4"]
    assert not {"0", "4", "3", "5"} & {task.id for task in world.tasks("validation")}


# Options and promises


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "original", "lookalikes": 2}, {"mode": "original", "observation_length": "brief"},
        {"mode": "original", "rank_noise": 0.1}, {"mode": "original", "mix": 1.0}, {"mode": "original", "k1": 1.2},
        {"mode": "original", "hardness": "easy"}, {"ids": "ids.json"}, {"mode": "original", "ids": "ids.json"},
        {"products": "products.json", "lookalikes": 2}, {"part_seed": 1}, {"mix_seed": 1}, {"k1": 0.0, "b": 0.5},
        {"indexed": []}, {"indexed": ["title", "title"]}, {"indexed": ["price"]}, {"rank_noise": 1.0}, {"part": 0.0},
        {"turn_limit": 3}, {"lookalikes": 5},
    ],
)  # fmt: skip
def test_options_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        WebShop(**wrong)


def test_the_module_imports_without_the_library() -> None:
    code = (
        "import sys; sys.modules['rapidfuzz'] = None\n"
        "from fedse.worlds.webshop import WebShop\n"
        "from fedse.errors import MissingExtra\n"
        "try: WebShop()\n"
        "except MissingExtra as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'.[webshop]'" in answer.stdout


@pytest.mark.parametrize("options", [{}, {"mode": "original"}, {**BRIEF, "rank_noise": 0.2, "indexed": ["title"]}])
@pytest.mark.slow
def test_the_checker_passes(options: dict[str, Any]) -> None:
    assert [finding for finding in check(lambda: WebShop(**options)) if not finding.passed] == []


@pytest.mark.slow
def test_the_checker_passes_on_the_official_catalogue(outside_data: Path) -> None:
    path = outside_data / "webshop" / "products_1k.json.gz"
    findings = check(lambda: WebShop(mode="original", products=path))
    assert [finding for finding in findings if not finding.passed] == []
