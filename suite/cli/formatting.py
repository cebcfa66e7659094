"""Cases, figures and times as short words."""

from collections.abc import Iterable
from typing import Any

from suite.contracts.case import Case
from suite.text import grouped


def label(case: Case, width: int, more: str = "") -> str:
    """Return the case's full label if it fits, else adapter/strategy workload devices x batch; then `more`."""
    short = f"{case.adapter}/{case.strategy} {case.workload} {case.placement.device_count}×{case.batch}"  # noqa: RUF001
    full, less = (f"{name} {more}".rstrip() for name in (case.label, short))
    return full if len(full) <= width else less


def apart(cases: Iterable[Case]) -> dict[str, str]:
    """Return, by id, the settings in which cases of one label differ; the tuning if any cases differ in it."""
    cases = list(cases)
    always = {"tuning"} if len({case.tuning for case in cases}) > 1 else set()
    words: dict[str, str] = {}
    for alike in grouped(cases, lambda case: case.label).values():
        settings = [_settings(case) for case in alike]
        names = dict.fromkeys(name for values in settings for name in values)
        differing = [
            name for name in names if name in always or len({str(values.get(name)) for values in settings}) > 1
        ]
        for case, values in zip(alike, settings, strict=True):
            words[case.id] = " ".join(_setting(name, values[name]) for name in differing if name in values)
    return words


def _settings(case: Case) -> dict[str, Any]:
    """Return all values; those of a part under the part's name, too, since a knob may be called `mode`."""
    values: dict[str, Any] = {}
    for name, value in case.to_dict().items():
        if isinstance(value, dict):
            values |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif name != "graph_digest":  # the workload's name says as much
            values[name] = value
    return values


def _setting(name: str, value: Any) -> str:
    if name == "passes":
        return f"{value[0]} alone" if len(value) == 1 else f"{len(value)} passes"
    return value if isinstance(value, str) else f"{name.rpartition('.')[2]}={value}"


def significant(value: float) -> str:
    """Write three significant digits, with an exponent only for very small and very large values."""
    if value == 0 or not 0.001 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = max(0, 3 - len(str(int(abs(value))))) if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def duration(seconds: float) -> str:
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
