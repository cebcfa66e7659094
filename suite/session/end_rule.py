"""The rule that ends a run: after the plan's processes, once the verdicts are clear, or once its time is up."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from stagebench.suite.errors import RequestError
from stagebench.suite.text import counted

CLEAR = 0.03  # half-width of a ratio's interval that is good enough where only a time was named
MOST_PROCESSES = 50  # of a case: two speeds that fifty processes cannot tell apart are equal for every purpose
TIME_IS_UP = "the time is up; the same command goes on with what is missing"
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class EndRule:
    """The options `--until` and `--for`; without either a run ends with the plan's processes."""

    precision: float | None = None  # half-width of a ratio's 95 % interval: 0.03 is 3 %
    seconds: float | None = None  # no process begins later

    @property
    def goes_on(self) -> bool:
        """True if cases may get more processes than the plan's."""
        return self.precision is not None or self.seconds is not None

    @property
    def clear(self) -> float:
        """The half-width at which a comparison is settled though it shows no difference."""
        return CLEAR if self.precision is None else self.precision

    def clock(self, now: Callable[[], float] = time.monotonic) -> Callable[[], bool]:
        """Start the clock; return a function that is true once the time is up."""
        began = now()
        return lambda: self.seconds is not None and now() - began >= self.seconds


PLANNED = EndRule()


def still_open(cases: int, processes: int, half_width: float) -> str:
    """Report the comparisons that `processes`, the most of a case, did not settle; `half_width` is relative."""
    are, whose = ("is", "its interval is") if cases == 1 else ("are", "their intervals are")
    most = f"after {processes} processes, the most that a case gets"
    return f"{counted(cases, 'case')} {are} still open {most}: {whose} wider than ±{100 * half_width:g}%"


def end_rule(until: str | None, time_limit: str | None) -> EndRule:
    """Read `--until 3%` and `--for 20min`; RequestError for any other form."""
    return EndRule(
        share_of("--until", until) if until is not None else None, _seconds(time_limit) if time_limit else None
    )


def share_of(option: str, text: str) -> float:
    """Read `3%` as 0.03; RequestError, naming the option, for any other form."""
    percent = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if not percent or not 0.1 <= float(percent[1]) <= 50:
        raise RequestError(f"{option} {text!r} should read N%, between 0.1% and 50%, such as 3%")
    return float(percent[1]) / 100


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", text.strip())
    if not found or float(found[1]) <= 0:
        raise RequestError(f"--for {text!r} should read a time with its unit (s, min or h), such as 20min")
    return float(found[1]) * UNITS[found[2]]
