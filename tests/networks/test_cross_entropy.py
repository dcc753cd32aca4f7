from __future__ import annotations

import pytest
import torch

from fedse.networks.training.cross_entropy import linear_cross_entropy


@pytest.mark.parametrize("most_logits", [1, 7 * 50, 2**27], ids=["row by row", "7 rows", "at once"])
@pytest.mark.parametrize("biased", [False, True])
def test_loss_and_gradient_are_torchs(most_logits: int, biased: bool) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(33, 16, requires_grad=True)
    weight, bias = torch.randn(50, 16), torch.randn(50) if biased else None
    targets, importance = torch.randint(0, 50, (33,)), torch.rand(33)
    each = torch.nn.functional.cross_entropy(
        torch.nn.functional.linear(hidden, weight, bias), targets, reduction="none"
    )
    wanted = (each * importance).sum()
    (wanted_gradient,) = torch.autograd.grad(3 * wanted, hidden)
    found = linear_cross_entropy(hidden, weight, bias, targets, importance, most_logits=most_logits)
    (gradient,) = torch.autograd.grad(3 * found, hidden)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert torch.allclose(gradient, wanted_gradient, atol=1e-5)


def test_a_sure_and_right_prediction_keeps_its_small_gradient_in_bfloat16() -> None:
    """The probability is 0.9999, which bfloat16 rounds to one: subtracting afterwards would give zero or noise."""
    weight = torch.tensor([[1.0], [-1.0]], dtype=torch.bfloat16)
    hidden = torch.tensor([[4.605]], dtype=torch.bfloat16, requires_grad=True)
    loss = linear_cross_entropy(hidden, weight, None, torch.tensor([0]), torch.ones(1))
    (gradient,) = torch.autograd.grad(loss, hidden)
    exact = -2 / (1 + torch.exp(2 * hidden.detach().double()))
    assert loss.dtype == torch.float32
    assert gradient.item() == pytest.approx(exact.item(), rel=0.02)
