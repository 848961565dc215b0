"""How numbers are put into the sentences of a verdict."""


def percent(fraction: float, digits: int = 0, *, sign: bool = False) -> str:
    """A fraction as percent: `0.05` is `5 %`, with `sign` `+5 %`."""
    return f"{100 * fraction:{'+' if sign else ''}.{digits}f} %"


def compared(value: float, limit: float) -> str:
    """Two numbers with the sign between them, with more digits where three would hide the difference."""
    sign = "<" if value < limit else ">=" if value == limit else ">"
    digits = 3 if f"{value:.3f}" != f"{limit:.3f}" else 6
    return f"{value:.{digits}f} {sign} {limit:.{digits}f}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 pair`, `2 pairs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
