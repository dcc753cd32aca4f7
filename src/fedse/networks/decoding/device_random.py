"""The random numbers of `seeds`, many streams at a time, on the device that draws with them."""

from __future__ import annotations

import torch

_GAMMA, _MIX, _MIX_AGAIN = (value - (1 << 64) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def signed(key: int) -> int:
    return key - (1 << 64) if key >= 1 << 63 else key


def uniform_of(key: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """`seeds.uniform` for many streams: 64-bit integers wrap around in the same way, shifts must not carry the sign."""
    state = key + (index + 1) * _GAMMA
    state = (state ^ _shifted(state, 30)) * _MIX
    state = (state ^ _shifted(state, 27)) * _MIX_AGAIN
    return _shifted(state ^ _shifted(state, 31), 11).double() * 2.0**-53


def _shifted(state: torch.Tensor, bits: int) -> torch.Tensor:
    return (state >> bits) & ((1 << (64 - bits)) - 1)
