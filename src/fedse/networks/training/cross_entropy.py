"""Cross-entropy of a linear output layer without ever holding all its logits."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from fedse.networks.training.row_owners import RowOwners

_MOST_LOGITS = 2**27
"""Logits held at once; half a gigabyte in float32."""

Soft = tuple[torch.Tensor, torch.Tensor]
"""Further targets of each row, and the factor of each one's loss: rows x targets."""


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradient is made beside the loss, piece by piece, as the logits of a piece are needed for both."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        importance: torch.Tensor,
        soft_targets: torch.Tensor | None,
        factors: torch.Tensor | None,
        owners: RowOwners | None,
        rows: int,
    ) -> torch.Tensor:
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        each = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device) if owners is not None else None
        gradient = torch.empty_like(hidden)
        for start in range(0, len(hidden), rows):
            here = slice(start, start + rows)
            logits = functional.linear(hidden[here], weight, bias)
            log_probability = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
            del logits
            wanted = targets[here, None]
            own = log_probability.gather(1, wanted).squeeze(1) * importance[here]
            if each is None:
                loss -= own.sum()
            else:
                each[here] = -own
            # Subtracted before rounding: where the model is sure, both are nearly one.
            if soft_targets is None or factors is None:
                error = log_probability.exp_().scatter_add_(1, wanted, torch.full_like(wanted, -1, dtype=torch.float32))
                torch.mul(error.to(weight.dtype) @ weight, importance[here, None], out=gradient[here])
                continue
            loss -= (log_probability.gather(1, soft_targets[here]) * factors[here]).sum()
            error = log_probability.exp_().mul_((importance[here] + factors[here].sum(dim=1))[:, None])
            error.scatter_add_(1, wanted, -importance[here, None]).scatter_add_(1, soft_targets[here], -factors[here])
            torch.mm(error.to(weight.dtype), weight, out=gradient[here])
        ctx.save_for_backward(gradient)
        ctx.owners = owners
        return loss if owners is None or each is None else owners.sums(each)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        factor = gradients[0] if ctx.owners is None else ctx.owners.spread(gradients[0])[:, None]
        return gradient * factor.to(gradient.dtype), *[None] * 8


def linear_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    importance: torch.Tensor,
    soft: Soft | None = None,
    most_logits: int = _MOST_LOGITS,
    owners: RowOwners | None = None,
) -> torch.Tensor:
    """Sum over rows of importance times negative log-likelihood of the target, in float32, and the same for further
    targets, if there are any. With owners there are none, and a sum for each adapter. The layer is frozen."""
    assert soft is None or owners is None
    rows = max(1, most_logits // len(weight))
    given = (hidden, weight, bias, targets, importance, *(soft or (None, None)), owners, rows)
    loss: torch.Tensor = _LinearCrossEntropy.apply(*given)  # type: ignore[no-untyped-call]
    return loss


def linear_log_probabilities(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    most_logits: int = _MOST_LOGITS,
) -> torch.Tensor:
    """Of the target of each row, in float32, without a gradient."""
    rows = max(1, most_logits // len(weight))
    found = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
    for start in range(0, len(hidden), rows):
        here = slice(start, start + rows)
        logits = functional.linear(hidden[here], weight, bias)
        log_probability = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
        found[here] = log_probability.gather(1, targets[here, None]).squeeze(1)
    return found


def linear_entropies(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, most_logits: int = _MOST_LOGITS
) -> torch.Tensor:
    """Of the distribution over targets in each row, in nats, in float32, without a gradient."""
    rows = max(1, most_logits // len(weight))
    pieces = []
    for start in range(0, len(hidden), rows):
        logits = functional.linear(hidden[start : start + rows], weight, bias)
        log_probability = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
        pieces.append(-(log_probability.exp() * log_probability).sum(dim=-1))
    return torch.cat(pieces)


def linear_likely_tokens(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, most: int, most_logits: int = _MOST_LOGITS
) -> tuple[torch.Tensor, torch.Tensor]:
    """So many likeliest targets of each row, or all there are, and their log-probabilities in float32."""
    rows = max(1, most_logits // len(weight))
    pieces = []
    for start in range(0, len(hidden), rows):
        logits = functional.linear(hidden[start : start + rows], weight, bias)
        pieces.append(torch.log_softmax(logits, dim=-1, dtype=torch.float32).topk(min(most, len(weight))))
    return torch.cat([piece.indices for piece in pieces]), torch.cat([piece.values for piece in pieces])
