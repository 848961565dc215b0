"""Traces of the Splitwise simulator: seconds from the start."""

from trtgate.traces.base import ColumnNames
from trtgate.traces.tables import TableReader

SPLITWISE = TableReader("splitwise", ColumnNames("arrival_timestamp", "prompt_size", "token_size"), "s")
