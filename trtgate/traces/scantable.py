"""A compiled scan of tables that are written as they should be; at the first doubt it gives up on the piece.

Import this module where a scan is needed, not at the top of a file: loading the compiler takes half a second.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trtgate.traces.base import LATEST_US
from trtgate.traces.files import Piece, bytes_of

_NEWLINE, _RETURN, _COMMA, _POINT, _COLON, _MINUS, _PLUS, _BLANK, _T, _Z = (
    ord(sign) for sign in "\n\r,.:-+ TZ"
)
_POWERS = 10.0 ** np.arange(23)
_MOST_DIGITS = 15  # such numbers are exact in a float, and so is their quotient by a power of ten
_FIRST_YEAR, _YEARS = 1970, 230
_DAYS_BEFORE = np.arange(_YEARS * 12 + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
_TO_MICROSECONDS = 10 ** np.arange(6, -1, -1)
_LARGEST = 2_000_000_000
_GIVE_UP = -1


def scan_table(
    piece: Piece, width: int, places: tuple[int, int, int], scale: float
) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
    """Return times in microseconds, shape (n,), and counts of prompt and output, shape (2, n); None at any doubt.

    `places` are the columns of time (-1 for none), prompt and output among `width`. A time is a number of `scale`
    microseconds, or a date where `scale` is 0.
    """
    text = bytes_of(piece)
    most = len(text) // 4 + 1  # the shortest row has two counts, a comma and a newline
    time_us = np.zeros(most, np.int64) if places[0] < 0 else np.empty(most, np.int64)
    counts = np.empty((2, most), np.int32)
    rows = _scan(text, width, places, scale, time_us, *counts)
    return None if rows < 0 else (time_us[:rows], counts[:, :rows])


@njit(cache=True, nogil=True)
def _scan(  # noqa: PLR0917 - compiled: calls with arrays in them cost more than branches
    text: NDArray[np.uint8],
    width: int,
    places: tuple[int, int, int],
    scale: float,
    time_us: NDArray[np.int64],
    prompt: NDArray[np.int32],
    output: NDArray[np.int32],
) -> int:
    """Fill the columns, and return how many rows there are, or -1 at the first doubt."""
    place, size, row = 0, len(text), 0
    while place < size:
        if text[place] == _NEWLINE or text[place] == _RETURN:
            place += 1
            continue
        value = 0
        for cell in range(width):
            if cell == places[0]:
                value, place = _date(text, place) if scale == 0 else _time(text, place, scale)
                time_us[row] = value
            elif cell == places[1]:
                value, place = _count(text, place)
                prompt[row] = value
            elif cell == places[2]:
                value, place = _count(text, place)
                output[row] = value
            else:
                place = _skip(text, place)
            if value < 0 or place < 0:
                return _GIVE_UP
            if cell < width - 1:
                if place >= size or text[place] != _COMMA:
                    return _GIVE_UP
                place += 1
        if place < size and text[place] == _RETURN:
            place += 1
        if place < size and text[place] != _NEWLINE:
            return _GIVE_UP
        place += 1
        row += 1
    return row


@njit(cache=True, nogil=True)
def _skip(text: NDArray[np.uint8], place: int) -> int:
    """Return the end of a cell that is not wanted; -1 at a quote."""
    size = len(text)
    while place < size and text[place] != _COMMA and text[place] != _NEWLINE and text[place] != _RETURN:
        if text[place] == 34:
            return _GIVE_UP
        place += 1
    return place


@njit(cache=True, nogil=True)
def _count(text: NDArray[np.uint8], place: int) -> tuple[int, int]:
    """Read digits; -1 where there are none or too many."""
    size = len(text)
    value, start = 0, place
    while place < size and 48 <= text[place] <= 57:
        value = value * 10 + (text[place] - 48)
        if value > _LARGEST:
            return _GIVE_UP, place
        place += 1
    return (_GIVE_UP, place) if place == start else (value, place)


@njit(cache=True, nogil=True)
def _time(text: NDArray[np.uint8], place: int, scale: float) -> tuple[int, int]:
    """Read a number that is not negative, in microseconds."""
    size = len(text)
    start = place
    value, places, digits = 0, 0, 0
    point = False
    while place < size:
        if 48 <= text[place] <= 57:
            value = value * 10 + (text[place] - 48)
            digits += 1
            places += point
        elif text[place] == _POINT and not point and digits > 0:
            point = True
        else:
            break
        place += 1
    if place == start or digits == 0 or digits > _MOST_DIGITS:
        return _GIVE_UP, place
    return int(np.rint(value / _POWERS[places] * scale)), place


@njit(cache=True, nogil=True)
def _date(text: NDArray[np.uint8], place: int) -> tuple[int, int]:
    """Read `YYYY-MM-DD hh:mm:ss` with `T` or a blank, up to nine digits of a second, and UTC or no zone."""
    size = len(text)
    if place + 19 > size:
        return _GIVE_UP, place
    year = _two(text, place) * 100 + _two(text, place + 2) - _FIRST_YEAR
    month, day = _two(text, place + 5), _two(text, place + 8)
    hour, minute, second = _two(text, place + 11), _two(text, place + 14), _two(text, place + 17)
    signs = text[place + 4] == _MINUS and text[place + 7] == _MINUS
    signs = signs and (text[place + 10] == _BLANK or text[place + 10] == _T)
    signs = signs and text[place + 13] == _COLON and text[place + 16] == _COLON
    sound = 0 <= year < _YEARS and 1 <= month <= 12 and day >= 1
    if not signs or not sound or not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return _GIVE_UP, place
    days = _DAYS_BEFORE[year * 12 + month - 1] + day - 1
    if days >= _DAYS_BEFORE[year * 12 + month]:
        return _GIVE_UP, place
    moment = ((days * 24 + hour) * 60 + minute) * 60 + second
    place += 19
    fraction, digits = 0, 0
    if place < size and text[place] == _POINT:
        place += 1
        while place < size and 48 <= text[place] <= 57:
            if digits < 6:
                fraction = fraction * 10 + (text[place] - 48)
            digits += 1
            place += 1
        if not 0 < digits <= 9:
            return _GIVE_UP, place
    fraction *= _TO_MICROSECONDS[min(digits, 6)]
    if place < size and text[place] == _Z:
        place += 1
    elif place + 6 <= size and text[place] == _PLUS:
        if _two(text, place + 1) != 0 or text[place + 3] != _COLON or _two(text, place + 4) != 0:
            return _GIVE_UP, place
        place += 6
    return moment * 1_000_000 + fraction, place


@njit(cache=True, nogil=True)
def _two(text: NDArray[np.uint8], place: int) -> int:
    """Read two digits; a large negative number where they are none."""
    tens, ones = int(text[place]) - 48, int(text[place + 1]) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else -1_000_000


@njit(cache=True, nogil=True)
def scale_times(values: NDArray[np.float64], scale: float, time_us: NDArray[np.int64]) -> int:
    """Fill times in microseconds from numbers in units of `scale` microseconds; returns how many are no time."""
    bad = 0
    for k in range(len(values)):
        scaled = np.rint(values[k] * scale)
        fine = abs(scaled) < LATEST_US
        bad += not fine
        time_us[k] = np.int64(scaled) if fine else 0
    return bad
