"""Lists of lengths without times: enough for sizes of steps, once the user says how many run at a time."""

from dataclasses import dataclass, replace
from pathlib import Path

from trtgate.errors import TraceError
from trtgate.traces.base import ColumnNames, ReadOptions, Trace
from trtgate.traces.files import read_head
from trtgate.traces.jsonlines import head_keys, read_json_lines
from trtgate.traces.tables import read_table, split_header

PAIRS = (
    ("num_prefill_tokens", "num_decode_tokens"),
    ("prompt_tokens", "output_tokens"),
    ("input_length", "output_length"),
    ("input_tokens", "output_tokens"),
)
_TIMES = frozenset({"arrived_at", "arrival_s", "timestamp", "delay"})


@dataclass(frozen=True, slots=True)
class LengthsReader:
    """Two columns or keys with lengths, under names of the user or known ones."""

    name: str = "lengths"

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the header says enough
        """Whether a table has known columns of lengths and none of time; JSON lines have to be asked for."""
        names = set(split_header(head)[1])
        return not head.lstrip().startswith(b"{") and not names & _TIMES and _known(names) is not None

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Read the lengths; all arrive at 0, and the time unit of the source is `none`."""
        head = read_head(path)
        keys = list(head_keys(head))
        pair = _known(set(keys or split_header(head)[1]))
        if options.columns:
            pair = (options.columns.prompt_tokens, options.columns.output_tokens)
        if pair is None:
            raise TraceError(
                f"`{path}` has no known columns of lengths",
                "name them with `--columns prompt=NAME,output=NAME`",
            )
        columns = ColumnNames(None, *pair)
        read = read_json_lines if keys else read_table
        trace = read(path, self.name, columns, "none", options)
        note = "no arrival times: the number of requests at a time must be given"
        return replace(trace, sources=(trace.sources[0].noted(note),))


def _known(names: set[str]) -> tuple[str, str] | None:
    return next((pair for pair in PAIRS if names.issuperset(pair)), None)


LENGTHS = LengthsReader()
