"""ServeGen client profiles: rates and distributions of lengths, from which requests are drawn by a seed."""

import ast
import json
from collections import Counter
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtgate.errors import TraceError
from trtgate.traces.base import MAX_TOKENS, ReadOptions, Trace
from trtgate.traces.files import hashing, read_whole
from trtgate.traces.rows import Kept, Origin, assemble, counted

RATES, LENGTHS = "-trace.csv", "-dataset.json"
LENGTHS_WINDOW_S = 21_600.0
WINDOW_S = 600.0
LAWS = ("Gamma", "Weibull")
MAX_DRAWN = 50_000_000
_MEDIA = ("image", "audio", "video")


@dataclass(frozen=True, slots=True)
class Window:
    """One row of the rates: requests a second from `start_s` on, and the law of the gaps between them."""

    start_s: float
    rate: float
    law: str
    shape: float


@dataclass(frozen=True, slots=True)
class Lengths:
    """Values of one field and how likely each is."""

    values: NDArray[np.int64]
    shares: NDArray[np.float64]

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw `count` values."""
        return rng.choice(self.values, count, p=self.shares)


Fields = dict[str, Lengths]


@dataclass(frozen=True, slots=True)
class ServegenReader:
    """A pair of files, `NAME-trace.csv` and `NAME-dataset.json`, of which either is given.

    Requests come at the recorded rate on average; windows without a rate or without lengths give none.
    """

    name: str = "servegen"

    def sniff(self, head: bytes, filename: str) -> bool:
        """Whether the name and the first bytes are those of one file of the pair."""
        if filename.endswith(LENGTHS):
            return head.lstrip().startswith(b"{") and b'_tokens"' in head
        return filename.endswith(RATES) and head.split(b"\n", 1)[0].count(b",") == 5

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Draw the requests of all windows; equal seeds give equal traces."""
        rates, lengths = _pair(path)
        with hashing(path) as digest:
            fields = _fields(lengths)
            windows = [window for window in _windows(rates) if window.rate > 0]
            filled = [window for window in windows if _fields_of(window, fields)]
            if not filled:
                raise TraceError(f"`{path}` has no window with a rate and lengths", "choose another client")
            if sum(window.rate * WINDOW_S for window in filled) > MAX_DRAWN:
                raise TraceError(f"`{path}` stands for more than {MAX_DRAWN} requests", "check the rates")
            note = f"drawn with seed {options.seed} from {len(filled)} windows of {WINDOW_S:g} s"
            if len(filled) < len(windows):
                note += (
                    "; " + counted(len(windows) - len(filled), "window has", "windows have") + " no lengths"
                )
            parts = (_draw(window, _fields_of(window, fields), options.seed) for window in filled)
            return assemble(parts, Origin(path, self.name, "s", digest, (note,)))


def _draw(window: Window, fields: Fields, seed: int) -> Kept:
    """Draw as many gaps as the rate tells, stretched to fill the window, and lengths for each arrival."""
    rng = np.random.default_rng([seed, int(window.start_s)])
    count = round(window.rate * WINDOW_S)
    law = rng.weibull if window.law == "Weibull" else rng.standard_gamma
    ends = np.cumsum(law(window.shape, count + 1))
    at_s = ends[:-1] / ends[-1] * WINDOW_S
    prompt = sum((_tokens(fields, name, rng, count) for name in _MEDIA), np.zeros(count, np.int64))
    for name in ("input_tokens", "text_tokens"):
        if name in fields:
            prompt += fields[name].draw(rng, count)
    output = fields["output_tokens"].draw(rng, count)
    time_us = np.rint((window.start_s + at_s) * 1e6).astype(np.int64)
    return Kept(time_us, _at_least_one(prompt), _at_least_one(output), Counter())


def _at_least_one(tokens: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.maximum(tokens, 1).astype(np.int32)


def _tokens(fields: Fields, name: str, rng: np.random.Generator, requests: int) -> NDArray[np.int64]:
    """Draw how many pictures (sounds, films) a request has, and the tokens of each."""
    if f"{name}_count" not in fields or f"{name}_tokens" not in fields:
        return np.zeros(requests, np.int64)
    counts = fields[f"{name}_count"].draw(rng, requests)
    tokens = fields[f"{name}_tokens"].draw(rng, int(counts.sum()))
    return np.bincount(np.repeat(np.arange(requests), counts), tokens, requests).astype(np.int64)


def _windows(rates: Path) -> list[Window]:
    """Read the rows of the rates: start, rate, spread, law, its two parameters."""
    windows = []
    for number, line in enumerate(read_whole(rates).splitlines(), 1):
        if not line.strip():
            continue
        try:
            start, rate, _, law, shape, _ = (cell.strip() for cell in line.split(","))
            window = Window(float(start), float(rate), law, float(shape))
        except ValueError:
            raise _bad_row(rates, number) from None
        sound = isfinite(window.rate) and 0 <= window.start_s < 1e9 and 0 <= window.shape < 1e6
        if not sound or (window.rate > 0 and (law not in LAWS or window.shape < 0.01)):
            raise _bad_row(rates, number)
        windows.append(window)
    return windows


def _bad_row(rates: Path, number: int) -> TraceError:
    return TraceError(
        f"row {number} of `{rates}` is no window of a ServeGen profile",
        "expected `start,rate,cv,law,shape,scale`",
    )


def _fields(lengths: Path) -> dict[float, Fields]:
    """Read the distributions of each window that has an output; a distribution is a dict as text."""
    try:
        windows = json.loads(read_whole(lengths))
        return {
            float(start): {name: _lengths(text) for name, text in fields.items() if _has_lengths(name, text)}
            for start, fields in windows.items()
            if fields.get("output_tokens", "{}") != "{}"
        }
    except (
        ValueError,
        TypeError,
        AttributeError,
        SyntaxError,
        ArithmeticError,
        RecursionError,
        MemoryError,
    ) as error:
        raise TraceError(
            f"`{lengths}` is no data set of a ServeGen profile: {error}", "fetch it again"
        ) from error


def _has_lengths(name: str, text: str) -> bool:
    return name.endswith(("_tokens", "_count")) and text != "{}"


def _lengths(text: str) -> Lengths:
    shares = ast.literal_eval(text)
    values = np.array(list(shares), np.int64)
    weights = np.array(list(shares.values()), np.float64)
    if values.min() < 0 or values.max() > MAX_TOKENS or not weights.min() >= 0 or not 0 < weights.sum() < 1e9:
        raise ValueError("a distribution needs lengths and shares of at least 0")
    return Lengths(values, weights / weights.sum())


def _fields_of(window: Window, fields: dict[float, Fields]) -> Fields:
    return fields.get(window.start_s // LENGTHS_WINDOW_S * LENGTHS_WINDOW_S, {})


def _pair(path: Path) -> tuple[Path, Path]:
    """Return the rates and the lengths, given either."""
    stem = path.name.removesuffix(LENGTHS).removesuffix(RATES)
    pair = path.with_name(stem + RATES), path.with_name(stem + LENGTHS)
    for one in pair:
        if not one.exists():
            raise TraceError(
                f"`{one}` is missing beside `{path.name}`", "a ServeGen profile is a pair of files"
            )
    return pair


SERVEGEN = ServegenReader()
