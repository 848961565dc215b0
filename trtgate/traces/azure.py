"""The Azure LLM inference traces of 2023, 2024 and 2025 (multimodal): one shape, three spellings of time."""

from trtgate.traces.base import ColumnNames
from trtgate.traces.tables import TableReader

AZURE = TableReader("azure", ColumnNames("TIMESTAMP", "ContextTokens", "GeneratedTokens"), "timestamp")
