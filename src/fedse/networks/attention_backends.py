"""Which of PyTorch's kernels a network's own attention may use."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.nn.attention import SDPBackend, sdpa_kernel


def for_any_length() -> AbstractContextManager[None]:
    """Those that take every length as it comes. cuDNN's plan each new one for seconds, and nearly every batch is new."""
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
