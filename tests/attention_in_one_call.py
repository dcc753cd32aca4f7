"""The GPU's attention kernel on a CPU: all segments in one call, with the keys and the fixed sizes that it is given."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from fedse.networks.training.attention_kernels import CudaFlash
from fedse.networks.training.packed_attention import QKV


class InOneCall(CudaFlash):
    """What the GPU's kernel computes, in plain matrices."""

    def _forward(self, qkv: QKV, edges: Any, scale: float) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        queries, keys, values = qkv
        group = queries.shape[1] // keys.shape[1]
        outputs, totals = [], []
        for query, key in zip(pairwise(edges[0].tolist()), pairwise(edges[1].tolist()), strict=True):
            assert query[1] - query[0] <= edges[2]
            assert key[1] - key[0] <= edges[3]
            mine = queries[slice(*query)].transpose(0, 1)
            theirs, content = (item[slice(*key)].repeat_interleave(group, 1).transpose(0, 1) for item in (keys, values))
            ahead = torch.ones(mine.shape[1], theirs.shape[1], dtype=torch.bool).triu(
                theirs.shape[1] - mine.shape[1] + 1
            )
            scores = (mine @ theirs.mT * scale).masked_fill(ahead, -torch.inf)
            outputs.append((scores.softmax(-1) @ content).transpose(0, 1))
            totals.append(scores.logsumexp(-1))
        return torch.cat(outputs), torch.cat(totals, dim=1)

    def _backward(self, gradient: Any, out: Any, total: Any, qkv: QKV, edges: Any, scale: float) -> QKV:  # type: ignore[override]
        with torch.enable_grad():
            own = tuple(item.detach().requires_grad_() for item in qkv)
            to_queries, to_keys, to_values = torch.autograd.grad(
                self._forward((own[0], own[1], own[2]), edges, scale)[0], own, gradient
            )
        # What nobody looks at has no gradient that anybody has written.
        end = int(edges[1][-1])
        to_keys, to_values = to_keys.clone(), to_values.clone()
        to_keys[end:] = to_values[end:] = torch.nan
        return to_queries, to_keys, to_values
