"""What the paper reports (Fed-SE, arXiv 2512.08870, version 2). One run for each number, no intervals."""

from __future__ import annotations

WORLDS = ("babyai", "webshop", "textcraft", "maze", "wordle")
DEMONSTRATIONS = dict(zip(WORLDS, (810, 3930, 374, 215, 955), strict=True))
TEST_TASKS = dict(zip(WORLDS, (90, 200, 100, 25, 25), strict=True))

TABLE1: dict[str, dict[str, tuple[float, ...]]] = {
    "Qwen2.5-7B": {
        "pretrained": (67.8, 2.0, 4.0, 32.0, 20.0, 18.6),
        "local": (90.0, 65.0, 63.0, 48.0, 12.0, 65.7),
        "centralized": (88.9, 71.0, 59.0, 40.0, 8.0, 66.6),
        "fedit": (83.3, 67.5, 54.0, 28.0, 20.0, 62.7),
        "fed_se": (93.3, 73.0, 67.0, 68.0, 32.0, 73.2),
    },
    "Llama2-7B": {
        "pretrained": (23.3, 0.0, 0.0, 20.0, 0.0, 5.9),
        "local": (67.8, 54.0, 33.0, 20.0, 4.0, 47.3),
        "centralized": (61.1, 59.0, 36.0, 32.0, 0.0, 49.3),
        "fedit": (70.0, 61.0, 49.0, 28.0, 16.0, 55.7),
        "fed_se": (92.2, 66.0, 52.0, 80.0, 16.0, 66.1),
    },
    "Qwen2.5-3B": {
        "pretrained": (48.9, 3.0, 1.0, 24.0, 4.0, 13.2),
        "local": (81.1, 60.0, 46.0, 28.0, 16.0, 56.8),
        "centralized": (83.3, 61.5, 48.0, 20.0, 4.0, 57.3),
        "fedit": (72.2, 63.5, 54.0, 20.0, 4.0, 57.3),
        "fed_se": (86.7, 65.0, 58.0, 36.0, 8.0, 63.0),
    },
    "Qwen3-1.7B": {
        "pretrained": (43.3, 7.0, 15.0, 40.0, 0.0, 17.7),
        "local": (73.3, 52.0, 42.0, 32.0, 4.0, 50.2),
        "centralized": (70.0, 44.5, 54.0, 0.0, 0.0, 46.8),
        "fedit": (61.1, 50.5, 46.0, 8.0, 4.0, 46.6),
        "fed_se": (74.4, 57.5, 46.0, 40.0, 4.0, 54.3),
    },
    "Qwen3-8B": {
        "pretrained": (40.0, 1.5, 1.0, 8.0, 32.0, 11.4),
        "local": (85.6, 64.5, 70.0, 32.0, 12.0, 65.2),
        "centralized": (78.9, 33.5, 63.0, 32.0, 8.0, 48.0),
        "fedit": (85.6, 64.5, 61.0, 12.0, 4.0, 61.6),
        "fed_se": (92.2, 68.0, 71.0, 64.0, 12.0, 70.2),
    },
}
"""Success in % of the five worlds, then the average, which is the micro-average over 440 tasks."""

ABLATIONS = {"fed_se": 66.1, "no_history": 64.1, "success_weighted": 59.8, "no_filter": 40.5}
"""Micro-averages on Llama2-7B."""
RANKS = {"rank_2": (47.0, 19.1), "rank_4": (51.8, 38.1), "rank_8": (57.5, 76.3), "rank_16": (59.1, 152.5)}
"""Micro-average and MiB of one float32 adapter on Llama2-7B. At rank 8 table 1 has 66.1; the paper does not say why."""


def micro(experiment: str, row: str, beside: str) -> float | None:
    """The paper's average for a row of one of its experiments; None where it has none."""
    if experiment == "table1":
        return TABLE1[beside][row][-1] if row in TABLE1[beside] else None
    if experiment == "ablations":
        return ABLATIONS.get(row)
    return RANKS[row][0] if row in RANKS else None
