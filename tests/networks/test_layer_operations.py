"""The Triton kernels of a layer against the plain operations: on a GPU, or on a CPU with TRITON_INTERPRET=1."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from fedse.networks.training.layer_operations import LayerOperations, PlainOperations

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from fedse.networks.training.triton_operations import TritonOperations  # noqa: E402

pytestmark = pytest.mark.gpu if DEVICE == "cuda" else []
DTYPES = [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32]
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(DEVICE, dtype)


def compare(
    apply: Callable[[LayerOperations, list[torch.Tensor]], tuple[torch.Tensor, ...]], inputs: list[torch.Tensor]
) -> None:
    """Outputs, and gradients of a sum in which every output counts with factors of its own."""
    found = []
    for operations in (TritonOperations(), PlainOperations()):
        own = [item.clone().requires_grad_() for item in inputs]
        outputs = apply(operations, own)
        total = sum(
            (out * numbers(*out.shape, seed=9 + place, dtype=out.dtype)).sum() for place, out in enumerate(outputs)
        )
        assert isinstance(total, torch.Tensor)
        found.append((*outputs, *torch.autograd.grad(total, own)))
    close = CLOSE[inputs[0].dtype]
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, atol=close * max(1.0, plain.abs().max().item()), rtol=close)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [72, 576])
def test_add_norm(dtype: torch.dtype, width: int) -> None:
    weight = numbers(width, seed=3, dtype=dtype)
    compare(
        lambda operations, own: operations.add_norm(own[0], own[1], weight, 1e-5),
        [numbers(5, width, dtype=dtype), numbers(5, width, seed=1, dtype=dtype)],
    )
    # Nothing to add, and nobody goes on with the sum.
    compare(
        lambda operations, own: operations.add_norm(own[0], None, weight, 1e-5)[1:], [numbers(5, width, dtype=dtype)]
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_turned_also_inside_a_wider_tensor(dtype: torch.dtype) -> None:
    rotary = (numbers(7, 32, dtype=dtype), numbers(7, 32, seed=1, dtype=dtype))
    compare(
        lambda operations, own: tuple(
            operations.rotate(item, rotary) for item in torch.split(own[0], [6, 2, 2], dim=1)[:2]
        ),
        [numbers(7, 10, 32, dtype=dtype)],
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_gated(dtype: torch.dtype) -> None:
    compare(lambda operations, own: (operations.gate(own[0]),), [3 * numbers(4, 2 * 1100, dtype=dtype)])
