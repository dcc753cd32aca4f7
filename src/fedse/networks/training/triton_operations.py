"""The operations of a layer as Triton kernels: each reads its inputs once, forward and back. They compute in float32."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fedse.networks.training.layer_operations import Rotary


class TritonOperations:
    def add_norm(
        self, hidden: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total, normed = _AddNorm.apply(hidden, added, weight, epsilon)  # type: ignore[no-untyped-call]
        return total, normed

    def rotate(self, vectors: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        rotate: torch.Tensor = _Rotate.apply(vectors, *rotary)  # type: ignore[no-untyped-call]
        return rotate

    def gate(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = _Gated.apply(inputs)  # type: ignore[no-untyped-call]
        return outputs


@triton.jit
def _add_norm(
    hidden, added, weight, total, normed, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < WIDTH
    value = tl.load(hidden + row * WIDTH + place, mask=inside, other=0.0)
    if ADD:
        value = value + tl.load(added + row * WIDTH + place, mask=inside, other=0.0)
        tl.store(total + row * WIDTH + place, value, mask=inside)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / WIDTH + epsilon)
    gain = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row * WIDTH + place, (wide * scale * gain).to(normed.dtype.element_ty), mask=inside)


@triton.jit
def _add_norm_back(
    total, weight, to_total, to_normed, out, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < WIDTH
    value = tl.load(total + row * WIDTH + place, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(to_normed + row * WIDTH + place, mask=inside, other=0.0).to(tl.float32) * gain
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / WIDTH + epsilon)
    along = tl.sum(gradient * value, axis=0) / WIDTH * scale * scale
    result = (gradient - value * along) * scale
    if ADD:
        result += tl.load(to_total + row * WIDTH + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + place, result.to(out.dtype.element_ty), mask=inside)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        rows, width = hidden.shape
        total = hidden if added is None else torch.empty_like(hidden)
        normed = torch.empty_like(hidden)
        _add_norm[(rows,)](
            hidden, hidden if added is None else added, weight, total, normed, epsilon,
            width, triton.next_power_of_2(width), added is not None, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(total, weight)
        ctx.epsilon = epsilon
        return total, normed

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        to_total, to_normed = gradients
        assert to_normed is not None
        total, weight = ctx.saved_tensors
        rows, width = total.shape
        to_normed = to_normed.contiguous()
        more = to_normed if to_total is None else to_total.contiguous()
        out = torch.empty_like(total)
        _add_norm_back[(rows,)](
            total, weight, more, to_normed, out, ctx.epsilon,
            width, triton.next_power_of_2(width), to_total is not None, num_warps=4,
        )  # fmt: skip
        return out, out if ctx.needs_input_grad[1] else None, None, None


@triton.jit
def _turn(
    vectors, token_stride, cosine, sine, out,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    HALF: tl.constexpr = SIZE // 2
    half = tl.arange(0, HALF)[None, :]
    head = tl.arange(0, BLOCK)[:, None]
    inside = head < HEADS
    source = vectors + token * token_stride + head * SIZE
    first = tl.load(source + half, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + HALF + half, mask=inside, other=0.0).to(tl.float32)
    first_cosine = tl.load(cosine + token * SIZE + half).to(tl.float32)
    second_cosine = tl.load(cosine + token * SIZE + HALF + half).to(tl.float32)
    first_sine = tl.load(sine + token * SIZE + half).to(tl.float32)
    second_sine = tl.load(sine + token * SIZE + HALF + half).to(tl.float32)
    if BACK:
        one = first * first_cosine + second * second_sine
        other = second * second_cosine + first * first_sine
    else:
        one = first * first_cosine + second * first_sine
        other = second * second_cosine + first * second_sine
    target = out + (token * HEADS + head) * SIZE
    tl.store(target + half, one.to(out.dtype.element_ty), mask=inside)
    tl.store(target + HALF + half, other.to(out.dtype.element_ty), mask=inside)


def _turn_all(vectors: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, back: bool) -> torch.Tensor:
    tokens, heads, size = vectors.shape
    out = vectors.new_empty(vectors.shape)
    _turn[(tokens,)](
        vectors, vectors.stride(0), cosine, sine, out, heads, triton.next_power_of_2(heads), size, back, num_warps=2
    )
    return out


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cosine, sine)
        return _turn_all(vectors, cosine, sine, back=False)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        cosine, sine = ctx.saved_tensors
        return _turn_all(gradients[0].contiguous(), cosine, sine, back=True), None, None


@triton.jit
def _gate(inputs, out, INNER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < INNER
    gate = tl.load(inputs + row * 2 * INNER + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(inputs + row * 2 * INNER + INNER + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * INNER + place, (gate / (1.0 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gate_back(inputs, gradients, out, INNER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < INNER
    gate = tl.load(inputs + row * 2 * INNER + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(inputs + row * 2 * INNER + INNER + place, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(gradients + row * INNER + place, mask=inside, other=0.0).to(tl.float32)
    share = 1.0 / (1.0 + tl.exp(-gate))
    to_gate = gradient * up * share * (1.0 + gate * (1.0 - share))
    tl.store(out + row * 2 * INNER + place, to_gate.to(out.dtype.element_ty), mask=inside)
    tl.store(out + row * 2 * INNER + INNER + place, (gradient * gate * share).to(out.dtype.element_ty), mask=inside)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor) -> torch.Tensor:
        inputs = inputs.contiguous()
        ctx.save_for_backward(inputs)
        rows, inner = len(inputs), inputs.shape[1] // 2
        out = inputs.new_empty(rows, inner)
        _gate[(rows, triton.cdiv(inner, 1024))](inputs, out, inner, 1024, num_warps=4)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (inputs,) = ctx.saved_tensors
        rows, inner = len(inputs), inputs.shape[1] // 2
        out = torch.empty_like(inputs)
        _gate_back[(rows, triton.cdiv(inner, 1024))](inputs, gradients[0].contiguous(), out, inner, 1024, num_warps=4)
        return out
