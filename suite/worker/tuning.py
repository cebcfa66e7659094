"""What a knob that is left open ("auto") means: the tuning decides.

Standard library only.
"""

from typing import Any

from suite.worker.contract import Setup

AUTO = "auto"
_SAME = object()


def chosen(setup: Setup, knob: str, default: Any, tuned: Any = _SAME) -> Any:
    """The knob's value as the plan has it; where it is "auto" or not named, `default`, or `tuned` of a tuned run.

    `memory_format = chosen(setup, "memory_format", default="contiguous", tuned="channels_last")`
    """
    value = setup.knobs.get(knob, AUTO)
    if value != AUTO:
        return value
    return default if tuned is _SAME or not setup.tuned else tuned
