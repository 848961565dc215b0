"""What every reader in the table promises, whoever adds it."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trtgate.errors import TraceError
from trtgate.traces import READERS, Ranges, ReadOptions, Steps, Trace, detect, read_any, read_trace

DATA = Path(__file__).parents[1] / "data" / "traces"
SAMPLES = {
    "azure": "azure_2023_style.csv",
    "burstgpt": "burstgpt_8col.csv",
    "vidur": "vidur.csv",
    "splitwise": "splitwise.csv",
    "mooncake": "mooncake_ms.jsonl",
    "bailian": "qwen_bailian_style.jsonl",
    "aibrix": "aibrix.jsonl",
    "servegen": "servegen-small-trace.csv",
    "trtllm-log": "iterlog_trtllm_g4.log",
    "trtllm-metrics": "trtllm_metrics_rows.jsonl",
    "vllm-log": "iterlog_vllm.log",
    "prometheus": "vllm_metrics.txt",
    "lengths": "lengths.csv",
    "parquet": "plain.parquet",
    "jsonl": "plain.jsonl",
    "csv": "plain.csv",
}
EVERY = pytest.mark.parametrize("name", READERS)


def columns(found):
    if isinstance(found, Trace):
        return found.arrival_s, found.prompt_tokens, found.output_tokens
    if isinstance(found, Steps):
        return found.decode, found.size, found.padded, found.step_ms, found.rank
    return found.low, found.high, found.count


def test_every_reader_has_a_sample():
    assert SAMPLES.keys() == READERS.keys()


@EVERY
def test_a_reader_bears_the_name_that_it_is_listed_under(name):
    assert READERS[name].name == name


@EVERY
def test_a_sample_is_known_by_its_first_bytes(name):
    assert detect(DATA / SAMPLES[name]).name == name


@EVERY
def test_every_row_is_kept_or_dropped_under_a_reason(name):
    (source,) = read_any(DATA / SAMPLES[name]).sources
    assert source.read == source.kept + sum(source.dropped.values()) > 0
    assert (source.name, source.format, len(source.sha256)) == (SAMPLES[name], name, 64)


@EVERY
def test_reading_twice_gives_the_same(name):
    first, second = (read_any(DATA / SAMPLES[name]) for _ in range(2))
    assert first.sources == second.sources
    assert all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(columns(first), columns(second), strict=True)
    )


@EVERY
def test_a_missing_file_is_refused(name, tmp_path):
    with pytest.raises(TraceError):
        READERS[name].read(tmp_path / "none", ReadOptions())


@EVERY
@pytest.mark.parametrize("content", [b"", b"\n", b"{}", b"[]", b"a,b\n1,2\n", b"junk\n" * 9, b"[" * 99_999])
def test_what_holds_nothing_of_the_format_is_refused(name, content, tmp_path):
    path = tmp_path / "x-trace.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        READERS[name].read(path, ReadOptions())
    assert caught.value.hint


@EVERY
def test_a_sample_cut_anywhere_is_read_or_refused(name, tmp_path):
    whole = (DATA / SAMPLES[name]).read_bytes()
    for cut in range(0, len(whole), max(len(whole) // 60, 1)):
        path = tmp_path / f"{cut}.cut"
        path.write_bytes(whole[:cut])
        try:
            (source,) = READERS[name].read(path, ReadOptions()).sources
        except TraceError:
            continue
        assert source.read >= source.kept > 0


@pytest.mark.parametrize("name", [name for name in READERS if name not in ("parquet", "servegen")])
def test_compression_changes_the_digest_of_the_file_and_nothing_else(name, tmp_path):
    path = tmp_path / SAMPLES[name]
    path.write_bytes(gzip.compress((DATA / SAMPLES[name]).read_bytes()))
    packed, plain = read_any(path), read_any(DATA / SAMPLES[name])
    assert all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(columns(packed), columns(plain), strict=True)
    )
    assert packed.sources[0].sha256 != plain.sources[0].sha256


@pytest.mark.parametrize("name", ["trtllm-log", "trtllm-metrics", "vllm-log", "prometheus"])
def test_iterations_are_no_trace(name):
    assert isinstance(read_any(DATA / SAMPLES[name]), Steps | Ranges)
    with pytest.raises(TraceError, match="holds iterations and no requests"):
        read_trace(DATA / SAMPLES[name])


def test_the_compiler_is_loaded_only_when_a_file_is_read():
    code = "import sys; import trtgate.traces; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=DATA.parents[2], check=False).returncode == 0
