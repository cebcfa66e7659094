"""How numbers are written on a page: three significant digits, units in the headings."""

from collections.abc import Callable, Sequence

from stagebench.suite.analysis.stats import Interval, Spread

UNKNOWN = "\u2013"  # an en dash


def number(value: float | None, scale: float = 1.0) -> str:
    """`value` times `scale`: three digits, thousands with a narrow no-break space; a dash for what is not known."""
    if value is None:
        return UNKNOWN
    value *= scale
    size = abs(value)
    if size >= 100 or value == 0:
        return f"{value:,.0f}".replace(",", "\u202f").replace("-", "\u2212")
    digits = 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:.{digits}f}" if size >= 0.001 else f"{value:.1e}"
    return text.replace("-", "\u2212")


def listed(words: Sequence[str]) -> str:
    """A, B and C."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def milliseconds(seconds: float | None) -> str:
    """Seconds written in milliseconds, without the unit."""
    return number(seconds, 1000)


def interval(found: Interval | None, written: Callable[[float | None], str] = number) -> str:
    """Its ends; a dash where there is none."""
    if found is None or not found.scatters:
        return UNKNOWN
    return f"{written(found.low)} … {written(found.high)}" if found.tells else "interval not determined"


def bracketed(found: Interval | None) -> str:
    """Its ends behind a value, in brackets; nothing where there is none."""
    return f" ({interval(found)})" if found and found.scatters else ""


def middle(found: Spread | None) -> str:
    return number(found.value if found else None)


def ends(found: Spread | None) -> str:
    """From the least to the most; nothing of a single one."""
    return f"{number(found.low)} … {number(found.high)}" if found and found.of > 1 else UNKNOWN


def accuracy(found: Spread | float | None) -> str:
    """Four decimals: a test set has thousands of samples at most."""
    value = found.value if isinstance(found, Spread) else found
    return UNKNOWN if value is None else f"{value:.4f}"


def whole_number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g}"


def mebibytes(size: float | None) -> str:
    """Bytes in MiB, without the unit."""
    return number(size, 2**-20)


def share(value: float | None) -> str:
    """A fraction in per cent."""
    return UNKNOWN if value is None else f"{value * 100:.1f} %".replace("-", "\u2212")


def percent(value: float | None) -> str:
    """A fraction in whole per cent; no line ends before its sign."""
    return UNKNOWN if value is None else f"{value * 100:.0f}\u00a0%".replace("-", "\u2212")


def of_bound(part: float) -> str:
    """Return an error as a part of its bound: per cent, and multiples from ten on."""
    return percent(part) if part < 10 else f"{number(part) if part < 1e6 else scientific(part)}\u00a0×"  # noqa: RUF001


def scientific(value: float | None) -> str:
    """An error; what was not finite is said so."""
    if value is None or value >= 1e299:
        return "not finite"
    return f"{value:.1e}" if value else "0"


def memory(size: float | None) -> str:
    """Bytes in GiB or MiB."""
    if size is None:
        return UNKNOWN
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"


def in_words(value: object, longest: int = 160) -> str:
    """A trainer's note in words; a long list says how long it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {in_words(each)}" for name, each in value.items())
    if not isinstance(value, list | tuple):
        return str(value)
    words = ", ".join(in_words(each) for each in value)
    return words if len(words) <= longest else f"{words[:longest].rpartition(', ')[0]}, … ({len(value)} in all)"


def moment(created: str) -> str:
    """When a run was begun, an ISO 8601 time, to the minute."""
    return created[:16].replace("T", " ") + " UTC" * created.endswith("+00:00") if created else "at an unknown time"


def range_of(words: Sequence[str]) -> str:
    """The first to the last of ordered words."""
    return words[0] if words[0] == words[-1] else f"{words[0]}\u2009\u2013\u2009{words[-1]}"
