"""Compiled scans of log bytes: one pass over a piece, one row of numbers for each iteration line.

Import this module where a scan is needed, not at the top of a file: loading the compiler takes half a second.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trtgate.traces.steps import (
    CTX_REQUESTS,
    CTX_TOKENS,
    DUMMY_CTX_TOKENS,
    GEN_TOKENS,
    ITERATION,
    RANK,
    SCHEDULED,
    STEP_MS,
)

_LARGEST = 1e15
_MOST_DIGITS = 16
_POWERS = 10.0 ** np.arange(_MOST_DIGITS + 1)
_NEWLINE, _COLON, _EQUALS, _BLANK, _QUOTE, _QUOTES, _POINT = (ord(sign) for sign in "\n:= '\".")
_START = np.frombuffer(b"iter = ", np.uint8)
_NEXT = np.frombuffer(b", global_rank", np.uint8)
_VLLM = np.frombuffer(b"Iteration(", np.uint8)


# the keys of a line in the order of the columns that they fill, then the two times
_WORDS = (
    b"iter",
    b"global_rank",
    b"num_scheduled_requests",
    b"num_ctx_requests",
    b"num_ctx_tokens",
    b"num_generation_tokens",
    b"adp_dummy_ctx_tokens",
    b"host_step_time",
    b"elapsed_time",
)
_ELAPSED = 8
_LENGTHS = np.array([len(word) for word in _WORDS])
_LETTERS = np.zeros((len(_WORDS), max(_LENGTHS)), np.uint8)
for _row, _word in zip(_LETTERS, _WORDS, strict=True):
    _row[: len(_word)] = np.frombuffer(_word, np.uint8)
_SHORTEST = min(_LENGTHS)
_GROUPS = np.zeros((256, 2), np.int64)  # keys by their last letter but two: the first, and behind the last
for _place, _word in enumerate(_WORDS):
    _begin, _end = _GROUPS[_word[-3]]
    _GROUPS[_word[-3]] = _begin if _end else _place, _place + 1
_BEGINS = np.zeros(256, np.bool_)  # with what the fields begin, and the end of the line
_BEGINS[[ord("i"), _NEWLINE]] = True
_STOPS = np.zeros(256, np.bool_)  # what stands between key and value, and the end of the line
_STOPS[[_COLON, _EQUALS, _NEWLINE]] = True
_WORDS_BETWEEN = (
    b"): ",
    b" context requests, ",
    b" context tokens, ",
    b" generation requests, ",
    b" generation tokens, iteration elapsed time: ",
    b" ms",
)
_BETWEEN_LENGTHS = np.array([len(words) for words in _WORDS_BETWEEN])
_BETWEEN = np.zeros((len(_WORDS_BETWEEN), max(_BETWEEN_LENGTHS)), np.uint8)
for _row, _word in zip(_BETWEEN, _WORDS_BETWEEN, strict=True):
    _row[: len(_word)] = np.frombuffer(_word, np.uint8)
_IN_WORD = np.zeros(256, np.bool_)
_IN_WORD[[*range(48, 58), *range(65, 91), 95, *range(97, 123)]] = True


@njit(cache=True, nogil=True)
def _is_at(text: NDArray[np.uint8], place: int, end: int, word: NDArray[np.uint8]) -> bool:
    if place + len(word) > end:
        return False
    for k in range(len(word)):  # noqa: SIM110 - compiled: no generators
        if text[place + k] != word[k]:
            return False
    return True


@njit(cache=True, nogil=True)
def _number(text: NDArray[np.uint8], place: int, end: int) -> tuple[float, int]:
    """Read digits with an optional fraction; -1 where there are none, or a sign."""
    value, places, start = 0, -1, place
    while place < end:
        if 48 <= text[place] <= 57:
            value = value * 10 + (text[place] - 48)
            places += places >= 0
        elif text[place] == _POINT and places < 0 and place > start:
            places = 0
        else:
            break
        place += 1
    if place == start:
        return -1.0, place
    if place - start > _MOST_DIGITS:
        return _LARGEST, place
    return (float(value) if places <= 0 else value / _POWERS[places]), place


@njit(cache=True, nogil=True)
def _key(text: NDArray[np.uint8], first: int, end: int) -> int:
    """Return the number of the key that ends at `end`, quotes and blanks left out; -1 where it is none of ours."""
    while end > first and text[end - 1] in (_QUOTE, _QUOTES, _BLANK):
        end -= 1
    if end - first < _SHORTEST:
        return -1
    for k in range(_GROUPS[text[end - 3], 0], _GROUPS[text[end - 3], 1]):
        start = end - _LENGTHS[k]
        if start < first or (start > first and _IN_WORD[text[start - 1]]):
            continue
        letter = 0
        while letter < _LENGTHS[k] and text[start + letter] == _LETTERS[k, letter]:
            letter += 1
        if letter == _LENGTHS[k]:
            return k
    return -1


@njit(cache=True, nogil=True)
def _seconds(text: NDArray[np.uint8], place: int, key: int) -> bool:
    """Whether a time is in seconds: by its suffix `s` or `ms`, else by its key."""
    if place < len(text) and text[place] == 115:  # s
        return True
    if place + 1 < len(text) and text[place] == 109 and text[place + 1] == 115:  # ms
        return False
    return key == _ELAPSED


@njit(cache=True, nogil=True)
def scan_trtllm(text: NDArray[np.uint8], rows: NDArray[np.float64]) -> tuple[int, int]:  # noqa: C901, PLR0912
    """Fill `rows` from the iteration lines of TensorRT-LLM; returns the counts of these and of all lines.

    A line counts from `iter = N, global_rank` on, and is read as `key = value` and `'key': value` in any order.
    """
    # all loops in one function: calls with arrays in them cost more than branches
    count, lines, place, size = 0, 0, 0, len(text)
    while place < size:
        first = -1  # where the fields of the line begin
        while first < 0:
            while place < size and not _BEGINS[text[place]]:
                place += 1
            if place >= size or text[place] == _NEWLINE:
                break
            if _is_at(text, place, size, _START):
                after = place + len(_START)
                while after < size and 48 <= text[after] <= 57:
                    after += 1
                if _is_at(text, after, size, _NEXT):
                    first = place
            place += 1
        if first >= 0:
            for column in range(STEP_MS):
                rows[count, column] = -1.0
            rows[count, STEP_MS] = np.nan
        while True:
            while place < size and not _STOPS[text[place]]:
                place += 1
            if place >= size or text[place] == _NEWLINE:
                break
            key = _key(text, first, place)
            place += 1
            if key >= 0:
                while place < size and text[place] == _BLANK:
                    place += 1
                value, place = _number(text, place, size)
                if key < STEP_MS:
                    rows[count, key] = value
                elif value >= 0:
                    rows[count, STEP_MS] = value * (1000 if _seconds(text, place, key) else 1)
        count += first >= 0
        lines += 1
        place += 1
    return count, lines


@njit(cache=True, nogil=True)
def scan_vllm(text: NDArray[np.uint8], rows: NDArray[np.float64]) -> tuple[int, int]:
    """Fill `rows` from the iteration lines of vLLM; returns the counts of these and of all lines.

    Six numbers stand between fixed words; SCHEDULED is the sum of both kinds of requests.
    """
    count, lines, place, size = 0, 0, 0, len(text)
    found = np.empty(6)
    while place < size:
        end, start = place, -1
        while end < size and text[end] != _NEWLINE:
            if start < 0 and text[end] == 73 and _is_at(text, end, size, _VLLM):  # I
                start = end + len(_VLLM)
            end += 1
        lines += 1
        if start >= 0:
            found[:] = -1.0
            after = start
            for k in range(6):
                found[k], after = _number(text, after, end)
                for letter in range(_BETWEEN_LENGTHS[k]):
                    if after < 0 or after >= end or text[after] != _BETWEEN[k, letter]:
                        after = -1  # not the words that are known: the numbers behind them stay unknown
                        break
                    after += 1
                if after < 0:
                    break
            rows[count, ITERATION] = found[0]
            rows[count, RANK] = _engine(text, place, start)
            rows[count, CTX_REQUESTS] = found[1]
            rows[count, CTX_TOKENS] = found[2]
            rows[count, SCHEDULED] = -1.0 if found[3] < 0 else found[1] + found[3]
            rows[count, GEN_TOKENS] = found[4]
            rows[count, DUMMY_CTX_TOKENS] = -1.0
            rows[count, STEP_MS] = np.nan if found[5] < 0 else found[5]
            count += 1
        place = end + 1
    return count, lines


@njit(cache=True, nogil=True)
def _engine(text: NDArray[np.uint8], place: int, end: int) -> float:
    """Return the number in `EngineCore_DP3` or `Engine 003`, 0 where there is none."""
    for k in range(place, end - 2):
        named = text[k] == 68 and text[k + 1] == 80  # DP
        counted = text[k] == 101 and text[k + 1] == _BLANK  # the end of `Engine `
        if (named or counted) and 48 <= text[k + 2] <= 57:
            return _number(text, k + 2, end)[0]
    return 0.0
