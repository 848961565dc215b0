"""Raw data comes back from Parquet as it was."""

import pandas as pd
import pytest

from trtgate.errors import TrtgateError
from trtgate.loads.base import Ask
from trtgate.loads.run import run_load
from trtgate.loads.tables import write_tables


def run(server, wire):
    server.scripts = [
        [wire.stream(wire.token(token_ids=[1, 2]), wire.token(token_ids=[3]), wire.done)],
        ["reset"],
    ]
    return run_load(server.target, [Ask(0.0, (1,), 3, "short"), Ask(0.0, (1,), 3, after=0)], timeout_s=5.0)


def test_requests_and_chunks_are_one_line_of_pandas_each(server, wire, tmp_path):
    requests, chunks = (pd.read_parquet(path) for path in write_tables(run(server, wire), tmp_path / "raw"))
    assert requests["tag"].tolist() == ["short", ""]
    assert requests["error"].isna().tolist() == [True, False]
    assert requests["first_s"].isna().tolist() == [False, True]
    assert chunks[["request", "tokens"]].values.tolist() == [[0, 2], [0, 1]]


def test_times_are_exactly_those_of_the_run(server, wire, tmp_path):
    result = run(server, wire)
    chunks = pd.read_parquet(write_tables(result, tmp_path)[1])
    assert chunks["at_s"].tolist() == list(result.answers[0].chunk_s)


def test_a_folder_that_cannot_be_is_named(server, wire, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrtgateError, match="cannot write"):
        write_tables(run(server, wire), tmp_path / "file" / "raw")
