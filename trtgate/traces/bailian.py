"""The Qwen-Bailian traces: seconds, prefix blocks of 16 tokens, one turn of a chat a line."""

from trtgate.traces.base import ColumnNames
from trtgate.traces.jsonlines import JsonLinesReader

BAILIAN = JsonLinesReader(
    "bailian",
    ColumnNames("timestamp", "input_length", "output_length"),
    "s",
    16,
    marks=frozenset({"chat_id", "parent_chat_id"}),
)
