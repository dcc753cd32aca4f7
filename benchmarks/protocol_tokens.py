"""How many tokens the paper's protocol takes, for arithmetic."""

from __future__ import annotations

PROTOCOL = {"prefilled": 2_230_000, "sampled": 1_570_000, "learned": 28_500_000, "learned_6284": 119_000_000}
"""Tokens of twenty rounds with five sites and 64 explored tasks each. Played: SmolLM2-135M with 200 demonstrations per site
(docs/results/sharing_seeds.json, seed 1: 349 prefilled and 246 sampled per episode in rounds 3 to 19), learned in the same
run, and in one with 6,284 demonstrations in all (docs/performance.md)."""
