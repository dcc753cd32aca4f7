"""A price on words, after Optima (arXiv 2410.08115): of two attempts that succeed, the shorter is worth more.

    reward = score - weight * max(0, score) * min(1, the agent's tokens / max_tokens)

What scores nothing or less is not priced, or giving up early would be the best of failures, and words would be rewarded
where worlds take points off. What scores something is priced, a success or not. Optima divides by the longest of the
samples at a task, where a fixed length lets a judge look at each attempt by itself. Its term for readable messages is left
out.
"""

from __future__ import annotations

from pydantic import Field

from fedse.clients.site import Site
from fedse.judges.world import WorldJudge
from fedse.plugins import PluginOptions
from fedse.types import Trajectory

TOKENS = "tokens"


class FewTokens(WorldJudge):
    """The score of the world, and less the more the agent said. For learners that compare attempts."""

    class Options(PluginOptions):
        weight: float = Field(default=0.5, gt=0)
        """What `max_tokens` tokens cost."""
        max_tokens: int = Field(default=400, ge=1)
        """Tokens of an episode beyond which it gets no worse."""

    def __init__(self, site: Site, weight: float = 0.5, max_tokens: int = 400) -> None:
        super().__init__(site)
        self.weight, self.max_tokens = weight, max_tokens

    def rewards(self, trajectory: Trajectory) -> dict[str, float]:
        price = max(trajectory.score, 0.0) * self.weight * min(1.0, trajectory.agent_tokens / self.max_tokens)
        return {**super().rewards(trajectory), TOKENS: -price}
