"""Measures how fast traffic is read, against DuckDB and Polars on the same bytes in the same run.

    python benchmarks/traces/run.py --log-mb 2048 --csv-mb 1024 --parquet-rows 28000000

Every case runs in its own process, so that its peak memory is its own. The other tools read one column and group by
it; trtgate reads all that it keeps (and the digest of the file) and groups by the same column.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

THREADS = 2
LINE = (
    "[06/10/2026-12:00:00] [TRT-LLM] [I] [_torch][RANK 0] iter = {n}, global_rank = 0, rank = 0, "
    "num_scheduled_requests = {requests}, kv_cache_util = 0.014, currank_total_requests = 0/{requests}, "
    "host_step_time = {ms:.6f}ms, prev_device_step_time = {ms:.6f}ms, timestamp = 2026-06-10 12:00:00, states = "
    "{{'num_ctx_requests': {ctx}, 'num_ctx_tokens': {ctx_tokens}, 'num_generation_tokens': {gen}}}\n"
)


def make_log(path: Path, megabytes: int) -> None:
    """Write an iteration log: one block of random iterations, repeated until it is large enough."""
    rng = np.random.default_rng(0)
    block = []
    for n in range(40_000):
        requests = int(rng.integers(1, 129))
        ctx = int(rng.integers(1, 5)) if rng.random() < 0.2 else 0
        ctx = min(ctx, requests)
        gen = requests - ctx if ctx else 1 << (requests - 1).bit_length()
        ms = 5 + requests * 0.03
        tokens = ctx * int(rng.integers(1, 2000))
        block.append(LINE.format(n=n, requests=requests, ms=ms, ctx=ctx, ctx_tokens=tokens, gen=gen))
    data = "".join(block)
    with path.open("w") as file:
        while file.tell() < megabytes << 20:
            file.write(data)


def make_csv(path: Path, megabytes: int) -> None:
    """Write a table in the Azure spelling of 2023."""
    rng = np.random.default_rng(0)
    rows = []
    for n in range(200_000):
        seconds, ticks = divmod(n * 123_457, 10_000_000)
        clock = f"2023-11-16 {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ticks:07}"
        rows.append(f"{clock},{int(rng.lognormal(7, 1)) + 1},{int(rng.lognormal(5, 1)) + 1}\n")
    block, day = "".join(rows), date(2023, 11, 16)
    with path.open("w") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        while file.tell() < megabytes << 20:
            file.write(block.replace("2023-11-16", day.isoformat()))
            day += timedelta(1)


def make_parquet(path: Path, rows: int) -> None:
    """Write a Parquet file with our own column names."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    schema = pa.schema(
        [("arrival_s", pa.float64()), ("prompt_tokens", pa.int64()), ("output_tokens", pa.int64())]
    )
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 1 << 20):
            count = min(1 << 20, rows - start)
            columns = [
                (start + np.arange(count)) * 0.021,
                rng.lognormal(7, 1, count).astype(np.int64) + 1,
                rng.lognormal(5, 1, count).astype(np.int64) + 1,
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def trtgate_log(path: Path) -> int:
    """Read steps; group decode iterations by size."""
    from trtgate.traces import Steps, read_any

    steps = read_any(path)
    assert isinstance(steps, Steps)
    return int(np.bincount(steps.size).sum())


def trtgate_log_in_parts(path: Path) -> int:
    """Read steps in parts; group each by size."""
    from trtgate.traces import stream_steps

    return sum(int(np.bincount(part.size).sum()) for part in stream_steps(path))


def trtgate_trace(path: Path) -> int:
    """Read a trace; group by prompt tokens."""
    from trtgate.traces import read_trace

    prompt_tokens = read_trace(path).prompt_tokens
    counts = np.zeros(prompt_tokens.max() + 1, np.int64)
    for start in range(0, len(prompt_tokens), 1 << 20):  # `bincount` copies what it must not write to
        counts += np.bincount(prompt_tokens[start : start + (1 << 20)], minlength=len(counts))
    return int(counts.sum())


def duckdb_log(path: Path) -> int:
    """Split lines at the key; group by its value."""
    return duckdb(
        "split_part(split_part(line, 'num_scheduled_requests = ', 2), ',', 1)::INT",
        f"read_csv('{path}', delim='\x01', quote='', escape='', header=false, columns={{'line': 'VARCHAR'}})",
    )


def duckdb_csv(path: Path) -> int:
    """Group by prompt tokens."""
    return duckdb("ContextTokens", f"read_csv('{path}')")


def duckdb_parquet(path: Path) -> int:
    """Group by prompt tokens."""
    return duckdb("prompt_tokens", f"read_parquet('{path}')")


def duckdb_csv_all(path: Path) -> int:
    """Group by prompt tokens; read time and output tokens too."""
    return duckdb("ContextTokens", f"read_csv('{path}')", ", max(TIMESTAMP) AS a, sum(GeneratedTokens) AS b")


def duckdb_parquet_all(path: Path) -> int:
    """Group by prompt tokens; read time and output tokens too."""
    return duckdb(
        "prompt_tokens", f"read_parquet('{path}')", ", max(arrival_s) AS a, sum(output_tokens) AS b"
    )


def duckdb(column: str, table: str, more: str = "") -> int:
    """Run one grouping query on two threads; returns the rows counted."""
    import duckdb as module

    connection = module.connect(config={"threads": THREADS})
    query = f"SELECT {column} AS k, count(*) AS n{more} FROM {table} GROUP BY k"
    return int(sum(row[1] for row in connection.execute(query).fetchall()))


def polars_log(path: Path) -> int:
    """Take the value of the key by pattern; group by it."""
    import polars as pl

    lines = pl.scan_csv(path, has_header=False, separator="\x01", quote_char=None, new_columns=["line"])
    size = pl.col("line").str.extract(r"num_scheduled_requests = (\d+)").cast(pl.Int32).alias("k")
    return int(lines.select(size).group_by("k").len().collect(engine="streaming")["len"].sum())


def polars_csv(path: Path) -> int:
    """Group by prompt tokens."""
    import polars as pl

    return int(pl.scan_csv(path).group_by("ContextTokens").len().collect(engine="streaming")["len"].sum())


def polars_parquet(path: Path) -> int:
    """Group by prompt tokens."""
    import polars as pl

    return int(pl.scan_parquet(path).group_by("prompt_tokens").len().collect(engine="streaming")["len"].sum())


def polars_csv_all(path: Path) -> int:
    """Group by prompt tokens; read time and output tokens too."""
    import polars as pl

    return polars_all(
        pl.scan_csv(path, try_parse_dates=True), "TIMESTAMP", "ContextTokens", "GeneratedTokens"
    )


def polars_parquet_all(path: Path) -> int:
    """Group by prompt tokens; read time and output tokens too."""
    import polars as pl

    return polars_all(pl.scan_parquet(path), "arrival_s", "prompt_tokens", "output_tokens")


def polars_all(table: "pl.LazyFrame", time_column: str, prompt: str, output: str) -> int:
    """Group a lazy table by one column, and reduce the two others."""
    import polars as pl

    grouped = table.group_by(prompt).agg(pl.len(), pl.col(time_column).max(), pl.col(output).sum())
    return int(grouped.collect(engine="streaming")["len"].sum())


CASES: dict[str, dict[str, Callable[[Path], int]]] = {
    "log": {"trtgate": trtgate_log, "duckdb": duckdb_log, "polars": polars_log},
    "log, in parts": {"trtgate": trtgate_log_in_parts, "duckdb": duckdb_log, "polars": polars_log},
    "csv": {"trtgate": trtgate_trace, "duckdb": duckdb_csv, "polars": polars_csv},
    "csv, all three columns": {"trtgate": trtgate_trace, "duckdb": duckdb_csv_all, "polars": polars_csv_all},
    "parquet": {"trtgate": trtgate_trace, "duckdb": duckdb_parquet, "polars": polars_parquet},
    "parquet, all three columns": {
        "trtgate": trtgate_trace,
        "duckdb": duckdb_parquet_all,
        "polars": polars_parquet_all,
    },
}


def measure(case: str, tool: str, path: Path, small: Path, *, warm_memory: bool) -> None:
    """Print seconds, peak memory and rows of one case, after a first run on a small file for the imports.

    With `warm_memory`, a process that ends just before has touched 1.5 GiB: the system has it at hand for any tool.
    """
    work = CASES[case][tool]
    work(small)
    if warm_memory:
        subprocess.run([sys.executable, "-c", "import numpy; numpy.ones(3 << 26)"], check=True)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    rows = work(path)
    took = {
        "seconds": time.perf_counter() - start_s,
        "cpu_s": time.process_time() - start_cpu_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "rows": rows,
    }
    print(json.dumps(took))


def compare(case: str, path: Path, small: Path, repeats: int, *, warm_memory: bool) -> None:
    """Run the tools in turn and print the best of each, with the ratio of the better other tool to ours."""
    subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)  # into the cache
    best: dict[str, dict[str, float]] = {}
    for _ in range(repeats):
        for tool in CASES[case]:
            command = [sys.executable, __file__, "--measure", case, tool, str(path), str(small)]
            command += ["--warm-memory"] * warm_memory
            env = os.environ | {
                "POLARS_MAX_THREADS": str(THREADS),
                "PYTHONPATH": str(Path(__file__).parents[2]),
            }
            took = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
            )
            if tool not in best or took["seconds"] < best[tool]["seconds"]:
                best[tool] = took
    print(f"{case}: {path.stat().st_size / 1e9:.2f} GB, {best['trtgate']['rows']} rows counted")
    for tool, took in best.items():
        print(
            f"  {tool:8} {took['seconds']:6.2f} s  cpu {took['cpu_s']:6.2f} s  peak {took['peak_mb']:7.0f} MB"
        )
    other = min(took["seconds"] for tool, took in best.items() if tool != "trtgate")
    other_cpu = min(took["cpu_s"] for tool, took in best.items() if tool != "trtgate")
    print(
        f"  rate against the better of the two: {other / best['trtgate']['seconds']:.2f} by the clock, "
        f"{other_cpu / best['trtgate']['cpu_s']:.2f} by CPU time"
    )


def main() -> None:
    """Generate the inputs, compare the tools."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log-mb", type=int, default=2048)
    parser.add_argument("--csv-mb", type=int, default=1024)
    parser.add_argument("--parquet-rows", type=int, default=28_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where the inputs go; kept if given")
    parser.add_argument("--warm-memory", action="store_true", help="touch 1.5 GiB before each measurement")
    parser.add_argument("--measure", nargs=4, metavar=("CASE", "TOOL", "FILE", "SMALL"))
    options = parser.parse_args()
    if options.measure:
        case, tool, path, small = options.measure
        measure(case, tool, Path(path), Path(small), warm_memory=options.warm_memory)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        sizes = {"log": options.log_mb, "csv": options.csv_mb, "parquet": options.parquet_rows}
        makers = {"log": make_log, "csv": make_csv, "parquet": make_parquet}
        for case, size in sizes.items():
            if not size:
                continue
            path, small = folder / f"{size}.{case}", folder / f"small.{case}"
            for file, amount in ((path, size), (small, 1)):
                if not file.exists():
                    makers[case](file, amount)
            for name in CASES:
                if name.split(",")[0] == case:
                    compare(name, path, small, options.repeats, warm_memory=options.warm_memory)


if __name__ == "__main__":
    main()
