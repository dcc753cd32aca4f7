"""Where the attention of a pack is computed: PyTorch's flash kernels on CPU and GPU, or plain matrices."""

from __future__ import annotations

import torch

from fedse.learners.packed_attention import Kernel, Segments, Three


def kernel_for(device: torch.device, dtype: torch.dtype) -> Kernel:
    if device.type == "cuda" and dtype in (torch.bfloat16, torch.float16):
        return CudaFlash()
    return CpuFlash() if device.type == "cpu" else Plain()


class CudaFlash:
    """All segments in one call, without a loop, so that a CUDA graph can hold it."""

    def within(self, three: Three, segments: Segments, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        edges, longest = segments.boundaries, segments.longest
        return self._forward(three, edges, edges, longest, longest, True, scale)

    def across(self, three: Three, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        queries, keys, _ = three
        return self._forward(three, *self._whole(queries, keys), len(queries), len(keys), False, scale)

    def within_backward(
        self,
        gradient: torch.Tensor,
        three: Three,
        out: torch.Tensor,
        total: torch.Tensor,
        segments: Segments,
        scale: float,
    ) -> Three:
        edges, longest = segments.boundaries, segments.longest
        return self._backward(gradient, three, out, total, edges, edges, longest, longest, True, scale)

    def across_backward(
        self, gradient: torch.Tensor, three: Three, out: torch.Tensor, total: torch.Tensor, scale: float
    ) -> Three:
        queries, keys, _ = three
        return self._backward(
            gradient, three, out, total, *self._whole(queries, keys), len(queries), len(keys), False, scale
        )

    @staticmethod
    def _whole(queries: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # arange, not a tensor of numbers from the host: a CUDA graph cannot wait for the host.
        edges = torch.arange(2, dtype=torch.int32, device=queries.device)
        return edges * len(queries), edges * len(keys)

    @staticmethod
    def _forward(
        three: Three,
        query_edges: torch.Tensor,
        key_edges: torch.Tensor,
        most_queries: int,
        most_keys: int,
        causal: bool,
        scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, total, *_ = torch.ops.aten._flash_attention_forward(
            *three, query_edges, key_edges, most_queries, most_keys, 0.0, causal, False, scale=scale
        )
        return out, total.T

    @staticmethod
    def _backward(
        gradient: torch.Tensor,
        three: Three,
        out: torch.Tensor,
        total: torch.Tensor,
        query_edges: torch.Tensor,
        key_edges: torch.Tensor,
        most_queries: int,
        most_keys: int,
        causal: bool,
        scale: float,
    ) -> Three:
        no_dropout = torch.zeros(2, dtype=torch.uint64, device=gradient.device)
        to_queries, to_keys, to_values = torch.ops.aten._flash_attention_backward(
            gradient,
            *three,
            out,
            total.T.contiguous(),
            query_edges,
            key_edges,
            most_queries,
            most_keys,
            0.0,
            causal,
            no_dropout,
            torch.empty(0, device=gradient.device),
            scale=scale,
        )
        return to_queries, to_keys, to_values


class _OneByOne:
    """Segments in a loop. A subclass computes one block, heads first: key heads x queries of each x tokens x size."""

    def within(self, three: Three, segments: Segments, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        done = [self._block(tuple(item[here] for item in three), True, scale) for here in segments.slices()]
        return torch.cat([out for out, _ in done]), torch.cat([total for _, total in done])

    def across(self, three: Three, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        return self._block(three, False, scale)

    def within_backward(
        self,
        gradient: torch.Tensor,
        three: Three,
        out: torch.Tensor,
        total: torch.Tensor,
        segments: Segments,
        scale: float,
    ) -> Three:
        done = [
            self._block_backward(
                gradient[here], tuple(item[here] for item in three), out[here], total[here], True, scale
            )
            for here in segments.slices()
        ]
        to_queries, to_keys, to_values = (torch.cat(pieces) for pieces in zip(*done, strict=True))
        return to_queries, to_keys, to_values

    def across_backward(
        self, gradient: torch.Tensor, three: Three, out: torch.Tensor, total: torch.Tensor, scale: float
    ) -> Three:
        return self._block_backward(gradient, three, out, total, False, scale)

    def _block(self, three: tuple[torch.Tensor, ...], causal: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        queries, keys, values = three
        heads, group = queries.shape[1], queries.shape[1] // keys.shape[1]
        out, total = self.forward(_by_head(queries, group), _shared(keys, group), _shared(values, group), causal, scale)
        return out.permute(2, 0, 1, 3).reshape(queries.shape), total.permute(2, 0, 1).reshape(-1, heads)

    def _block_backward(
        self,
        gradient: torch.Tensor,
        three: tuple[torch.Tensor, ...],
        out: torch.Tensor,
        total: torch.Tensor,
        causal: bool,
        scale: float,
    ) -> Three:
        queries, keys, values = three
        group = queries.shape[1] // keys.shape[1]
        to_queries, to_keys, to_values = self.backward(
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

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: bool, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError

    def backward(
        self, gradient: torch.Tensor, three: Three, out: torch.Tensor, total: torch.Tensor, causal: bool, scale: float
    ) -> Three:
        raise NotImplementedError


def _by_head(tensor: torch.Tensor, group: int) -> torch.Tensor:
    tokens, heads, size = tensor.shape
    return tensor.view(tokens, heads // group, group, size).permute(1, 2, 0, 3)


def _shared(tensor: torch.Tensor, group: int) -> torch.Tensor:
    tokens, heads, size = tensor.shape
    return tensor.transpose(0, 1)[:, None].expand(heads, group, tokens, size)


class CpuFlash(_OneByOne):
    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: bool, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            queries, keys, values, 0.0, causal, scale=scale
        )
        return out, total

    def backward(
        self, gradient: torch.Tensor, three: Three, out: torch.Tensor, total: torch.Tensor, causal: bool, scale: float
    ) -> Three:
        to_queries, to_keys, to_values = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, *three, out, total, 0.0, causal, scale=scale
        )
        return to_queries, to_keys, to_values


class Plain(_OneByOne):
    """For what flash kernels do not do: float32 on a GPU."""

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: bool, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self._scores(queries, keys, causal, scale)
        total = scores.logsumexp(-1)
        return (scores - total[..., None]).exp() @ values, total

    def backward(
        self, gradient: torch.Tensor, three: Three, out: torch.Tensor, total: torch.Tensor, causal: bool, scale: float
    ) -> Three:
        queries, keys, values = three
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
