"""The BurstGPT traces of 6 and 8 columns: seconds from midnight; failed requests have no response tokens."""

from trtgate.traces.base import ColumnNames
from trtgate.traces.tables import TableReader

BURSTGPT = TableReader("burstgpt", ColumnNames("Timestamp", "Request tokens", "Response tokens"), "s")
