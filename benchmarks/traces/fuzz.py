"""Feeds damaged samples to every reader: each input must be read with balanced books, or refused by `TraceError`.

    python benchmarks/traces/fuzz.py --inputs 1000000 --seed 1

Prints each failure with the seed of its input, and the number of inputs read, refused and failed.
"""

import argparse
import random
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from trtgate.errors import TraceError
from trtgate.traces import READERS, Reader, ReadOptions, detect

DATA = Path(__file__).parents[2] / "tests" / "data" / "traces"
TOKENS = [
    *(
        b"NaN",
        b"-1",
        b"1e400",
        b"-Infinity",
        b"9" * 25,
        b"0",
        b"null",
        b"true",
        b'"',
        b"'",
        b",",
        b";",
        b"\n",
        b"\r\n",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"=",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xc3",
        b"iter = ",
        b"N/A",
        b"\\u0000",
    ),
    *(
        b"2024-02-30 25:61:61",
        b"0001-01-01",
        b"9999-12-31T23:59:59.999999999Z",
        b" ",
        b"\t",
        b"#",
        b'le="',
        b"+Inf",
    ),
    *(b"[" * 200, b"(" * 200, b"," * 50, b"\n" * 50),
]
HUGE = 1 << 16


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Change a few places of a sample: drop, repeat, replace, insert, cut, swap lines."""
    for _ in range(rng.randint(1, 6)):
        start = rng.randint(0, len(data))
        end = min(len(data), start + int(rng.expovariate(1 / 12)))
        kind = rng.randrange(7)
        if kind == 0:
            data = data[:start] + data[end:]
        elif kind == 1:
            data = data[:end] + data[start:end] * rng.randint(1, 4) + data[end:]
        elif kind == 2:
            data = data[:start] + rng.choice(TOKENS) + data[end:]
        elif kind == 3:
            data = data[:start] + rng.choice(TOKENS) + data[start:]
        elif kind == 4:
            data = data[:start] + rng.randbytes(end - start) + data[end:]
        elif kind == 5 and rng.random() < 0.3:
            data = data[:start]
        else:
            rows = data.split(b"\n")
            rng.shuffle(rows)
            data = b"\n".join(rows)
        data = data[:HUGE]
    return data


def main() -> None:
    """Fuzz until the number of inputs or the time is reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("error")
    samples = sorted(path for path in DATA.iterdir() if path.stat().st_size < HUGE)
    own = {path: reader.name for path in samples if (reader := known(path))}
    fates: Counter[str] = Counter()
    stop_s = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for number in range(options.inputs):
            if time.monotonic() > stop_s:
                break
            rng = random.Random(f"{options.seed}-{number}")
            sample = rng.choice(samples)
            path = Path(folder) / sample.name
            if "servegen" in sample.name:
                for half in DATA.glob("servegen-small-*"):
                    (Path(folder) / half.name).write_bytes(half.read_bytes())
            path.write_bytes(damaged(sample.read_bytes(), rng))
            reader = own.get(sample, "csv") if rng.random() < 0.8 else rng.choice(list(READERS))
            fates[one(path, reader, rng, f"{options.seed}-{number}")] += 1
    print(dict(fates), sum(fates.values()), "inputs")


def known(path: Path) -> Reader | None:
    """Return the reader of a sample."""
    try:
        return detect(path)
    except TraceError:
        return None


def one(path: Path, name: str, rng: random.Random, seed: str) -> str:
    """Read one file by the reader of its sample, or find the reader first."""
    try:
        reader = detect(path) if rng.random() < 0.2 else READERS[name]
        metric = rng.choice([None, "e2e_request_latency_seconds"])
        options = ReadOptions(
            metric=metric, zero_output=rng.choice(["drop", "one"]), draft_len=rng.choice([0, 3])
        )
        (source,) = reader.read(path, options).sources
    except TraceError as error:
        return "refused" if error.hint else "refused without a hint"
    except Exception:  # noqa: BLE001 - any other error is what is looked for
        print("FAILED", seed, path.name)
        traceback.print_exc()
        return "failed"
    balanced = source.read == source.kept + sum(source.dropped.values()) and source.kept > 0
    if not balanced:
        print("UNBALANCED", seed, path.name, source)
    return "read" if balanced else "failed"


if __name__ == "__main__":
    main()
