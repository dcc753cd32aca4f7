"""Work that is recorded once as a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class GraphRecorder:
    """Graphs that run one after another and keep nothing for each other, so that they share their memory and what cuBLAS
    takes for a stream. Those of two recorders may run at the same time."""

    def __init__(self, priority: int = 0) -> None:
        """Kernels of a lower number go first where both want the card."""
        self._priority = priority
        self._stream: Any = None

    def forget(self) -> None:
        """No graph is used any more."""
        self._pool: Any = None

    def recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = self._stream or torch.cuda.Stream(priority=self._priority)  # type: ignore[no-untyped-call]
        # Kernels are compiled and libraries set up by a first run, which a recording could not hold.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            work()
        return graph.replay
