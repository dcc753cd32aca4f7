"""Where the attention of a pack is computed: PyTorch's flash kernels on CPU and GPU, or plain matrices."""

from __future__ import annotations

import torch

from fedse.networks.training.packed_attention import QKV, Kernel, KeyIndex, Segments

_Edges = tuple[torch.Tensor, torch.Tensor, int, int]
"""Where the queries and the keys of each segment begin and end, and how many there are at most."""


def kernel_for(device: torch.device, dtype: torch.dtype) -> Kernel:
    if device.type == "cuda" and dtype in (torch.bfloat16, torch.float16):
        return CudaFlash()
    return CpuFlash() if device.type == "cpu" else Plain()


class CudaFlash:
    """All segments in one call, without a loop, so that a CUDA graph can hold it."""

    def forward(self, qkv: QKV, segments: Segments, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        return self._forward(*self._with_openings(qkv, segments), scale)

    def backward(
        self,
        gradient: torch.Tensor,
        qkv: QKV,
        out: torch.Tensor,
        total: torch.Tensor,
        segments: Segments,
        scale: float,
    ) -> QKV:
        to_queries, *others = self._backward(gradient, out, total, *self._with_openings(qkv, segments), scale)
        if segments.opening:
            others = [_gathered(item, segments.key_index) for item in others]
        return to_queries, others[0], others[1]

    @staticmethod
    def _with_openings(qkv: QKV, segments: Segments) -> tuple[QKV, _Edges]:
        queries, keys, values = qkv
        edges, longest = segments.boundaries, segments.longest
        if not segments.opening:
            return qkv, (edges, edges, longest, longest)
        # A call of its own for the opening would leave most of the GPU idle: one short row of keys, all tokens' queries.
        key_index = segments.key_index
        keys, values = keys.index_select(0, key_index.rows), values.index_select(0, key_index.rows)
        return (queries, keys, values), (edges, key_index.boundaries, longest, key_index.longest)

    @staticmethod
    def _forward(qkv: QKV, edges: _Edges, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Of queries and keys that end together, each query sees the keys up to its own place."""
        out, total, *_ = torch.ops.aten._flash_attention_forward(*qkv, *edges, 0.0, True, False, scale=scale)
        return out, total

    @staticmethod
    def _backward(
        gradient: torch.Tensor, out: torch.Tensor, total: torch.Tensor, qkv: QKV, edges: _Edges, scale: float
    ) -> QKV:
        no_dropout = torch.zeros(2, dtype=torch.uint64, device=gradient.device)
        nothing = torch.empty(0, device=gradient.device)
        to_queries, to_keys, to_values = torch.ops.aten._flash_attention_backward(
            gradient, *qkv, out, total, *edges, 0.0, True, no_dropout, nothing, scale=scale
        )
        return to_queries, to_keys, to_values


def _gathered(gradient: torch.Tensor, key_index: KeyIndex) -> torch.Tensor:
    """What each token's key got in its own segment, and an opening's in all copies."""
    found, copies, beyond = gradient.index_select(0, key_index.own), key_index.copies, key_index.beyond
    copied = gradient.index_select(0, copies.flatten()).view(*copies.shape, -1).masked_fill_(beyond[..., None], 0.0)
    sums = key_index.members.to(gradient.dtype) @ copied.flatten(1)
    return found.index_add_(0, key_index.opening.flatten(), sums.view(-1, *found.shape[1:]))


class _OneByOne:
    """Segments in a loop, and each group's opening for all that look at it at once.

    Attention over two sets of keys is the mean of both, weighted by their sums of exponentials. With the joint result and
    the joint sum, the gradient of each part is that of ordinary attention.
    A subclass computes one block, heads first: key heads x queries of each x tokens x size.
    """

    def forward(self, qkv: QKV, segments: Segments, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        done = [self._block(tuple(item[here] for item in qkv), True, scale) for here in segments.slices()]
        out, total = torch.cat([out for out, _ in done]), torch.cat([total for _, total in done])
        for opening, rest in segments.parts_with_openings():
            there, there_total = self._block(_to_opening(qkv, opening, rest), False, scale)
            here, here_total = out[rest], total[rest]
            joint = torch.logaddexp(here_total, there_total)
            here.mul_((here_total - joint).exp_()[..., None]).addcmul_(there, (there_total - joint).exp_()[..., None])
            here_total.copy_(joint)
        return out, total

    def backward(
        self,
        gradient: torch.Tensor,
        qkv: QKV,
        out: torch.Tensor,
        total: torch.Tensor,
        segments: Segments,
        scale: float,
    ) -> QKV:
        done = [
            self._block_backward(gradient[here], tuple(item[here] for item in qkv), out[here], total[here], True, scale)
            for here in segments.slices()
        ]
        to_queries, to_keys, to_values = (torch.cat(pieces) for pieces in zip(*done, strict=True))
        for opening, rest in segments.parts_with_openings():
            there = self._block_backward(
                gradient[rest], _to_opening(qkv, opening, rest), out[rest], total[rest], False, scale
            )
            to_queries[rest] += there[0]
            to_keys[opening] += there[1]
            to_values[opening] += there[2]
        return to_queries, to_keys, to_values

    def _block(self, qkv: tuple[torch.Tensor, ...], causal: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        queries, keys, values = qkv
        heads, group = queries.shape[1], queries.shape[1] // keys.shape[1]
        out, total = self.block_forward(
            _by_head(queries, group), _shared(keys, group), _shared(values, group), causal, scale
        )
        return out.permute(2, 0, 1, 3).reshape(queries.shape), total.permute(2, 0, 1).reshape(-1, heads)

    def _block_backward(
        self,
        gradient: torch.Tensor,
        qkv: tuple[torch.Tensor, ...],
        out: torch.Tensor,
        total: torch.Tensor,
        causal: bool,
        scale: float,
    ) -> QKV:
        queries, keys, values = qkv
        group = queries.shape[1] // keys.shape[1]
        to_queries, to_keys, to_values = self.block_backward(
            _by_head(gradient, group),
            (_by_head(queries, group), _shared(keys, group), _shared(values, group)),
            _by_head(out, group),
            _by_head(total[..., None], group)[..., 0],
            causal,
            scale,
        )
        return (
            to_queries.permute(2, 0, 1, 3).reshape(queries.shape),
            to_keys.sum(1).transpose(0, 1),
            to_values.sum(1).transpose(0, 1),
        )

    def block_forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: bool, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError

    def block_backward(
        self, gradient: torch.Tensor, qkv: QKV, out: torch.Tensor, total: torch.Tensor, causal: bool, scale: float
    ) -> QKV:
        raise NotImplementedError


def _to_opening(qkv: QKV, opening: slice, rest: slice) -> QKV:
    queries, keys, values = qkv
    return queries[rest], keys[opening], values[opening]


def _by_head(tensor: torch.Tensor, group: int) -> torch.Tensor:
    tokens, heads, size = tensor.shape
    return tensor.view(tokens, heads // group, group, size).permute(1, 2, 0, 3)


def _shared(tensor: torch.Tensor, group: int) -> torch.Tensor:
    tokens, heads, size = tensor.shape
    return tensor.transpose(0, 1)[:, None].expand(heads, group, tokens, size)


class CpuFlash(_OneByOne):
    def block_forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: bool, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            queries, keys, values, 0.0, causal, scale=scale
        )
        return out, total

    def block_backward(
        self, gradient: torch.Tensor, qkv: QKV, out: torch.Tensor, total: torch.Tensor, causal: bool, scale: float
    ) -> QKV:
        to_queries, to_keys, to_values = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, *qkv, out, total, 0.0, causal, scale=scale
        )
        return to_queries, to_keys, to_values


class Plain(_OneByOne):
    """For what flash kernels do not do: float32 on a GPU."""

    def block_forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: bool, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self._scores(queries, keys, causal, scale)
        total = scores.logsumexp(-1)
        return (scores - total[..., None]).exp() @ values, total

    def block_backward(
        self, gradient: torch.Tensor, qkv: QKV, out: torch.Tensor, total: torch.Tensor, causal: bool, scale: float
    ) -> QKV:
        queries, keys, values = qkv
        share = (self._scores(queries, keys, causal, scale) - total[..., None]).exp()
        mean = (gradient * out).sum(-1, keepdim=True)
        to_scores = share * (gradient @ values.mT - mean) * scale
        return to_scores @ keys, to_scores.mT @ queries, share.mT @ gradient

    @staticmethod
    def _scores(queries: torch.Tensor, keys: torch.Tensor, causal: bool, scale: float) -> torch.Tensor:
        scores = queries @ keys.mT * scale
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        return scores
