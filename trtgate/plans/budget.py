"""Graph memory and KV cache as one budget: what a grid takes away in tokens and sequences."""

from typing import Self

from pydantic import Field

from trtgate.record import Record


class KvBudget(Record):
    """Bytes that graphs and KV cache share, and what a token and a sequence take of the cache."""

    shared_bytes: int = Field(ge=0)
    kv_bytes_per_token: int = Field(ge=1)
    tokens_per_sequence: float = Field(gt=0)
    tokens_per_block: int = Field(default=32, ge=1)

    def beside(self, graph_bytes: int) -> Self:
        """The budget that is left to the other kind of graph, once `graph_bytes` are spent."""
        return self.model_copy(update={"shared_bytes": max(self.shared_bytes - graph_bytes, 0)})

    def tokens(self, graph_bytes: int) -> int:
        """KV tokens, in whole blocks, that are left beside graphs of this size."""
        left = max(self.shared_bytes - graph_bytes, 0) // self.kv_bytes_per_token
        return left - left % self.tokens_per_block

    def sequences(self, graph_bytes: int) -> int:
        """Sequences of the stated length that are left beside graphs of this size."""
        return int(self.tokens(graph_bytes) / self.tokens_per_sequence)
