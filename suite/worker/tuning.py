"""The value of a knob that is left open ("auto"): the tuning decides.

Standard library only.
"""

from typing import Any

from suite.worker.contract import Setup

AUTO = "auto"
_SAME = object()


def chosen(setup: Setup, knob: str, default: Any, tuned: Any = _SAME) -> Any:
    """Return the knob's value in the plan; if it is "auto" or not named, `default`, or `tuned` of a tuned run.

    `memory_format = chosen(setup, "memory_format", default="contiguous", tuned="channels_last")`
    """
    value = setup.knobs.get(knob, AUTO)
    if value != AUTO:
        return value
    return default if tuned is _SAME or not setup.tuned else tuned
