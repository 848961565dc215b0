"""Traces of the Vidur simulator: seconds from the start."""

from trtgate.traces.base import ColumnNames
from trtgate.traces.tables import TableReader

VIDUR = TableReader("vidur", ColumnNames("arrived_at", "num_prefill_tokens", "num_decode_tokens"), "s")
