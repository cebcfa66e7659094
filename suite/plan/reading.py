"""In which form a case's data are read: the files as they stand, or packed for the framework's own reader."""

from pathlib import Path

from suite.adapter import Capabilities, Format
from suite.case import TRAIN, Case
from suite.data.records import missing
from suite.data.sets import kind_of
from suite.plan.sweep import Choice

FILES, BEST = "files", "best"


def form(choice: Choice, able: Capabilities, source: Path | None) -> str:
    """The format that a choice comes to: "best" is the adapter's own, where it can serve; memory has none."""
    if source is None or choice["data_mode"] == "memory" or choice["format"] == FILES:
        return FILES
    if choice["format"] != BEST:
        return str(choice["format"])
    fitting = (
        each
        for each in able.formats
        if kind_of(source) in each.kinds
        and not _conflict(
            each, TRAIN in choice.block.passes, choice["augment"] == "random", choice["on_error"] == "skip"
        )
    )
    return next((each.name for each in fitting), FILES)


def refusal(able: Capabilities, case: Case, source: Path | None) -> tuple[str, str] | None:
    """(outcome, reason) when the case cannot be read in its format; None when it can."""
    name = case.input.format
    if name == FILES or source is None:
        return None
    found = able.format(name)
    if found is None:
        offers = ", ".join((FILES, *(each.name for each in able.formats)))
        return "unsupported", f"{case.adapter} does not read format {name!r}; it reads {offers}"
    if kind_of(source) not in found.kinds:
        return (
            "unsupported",
            f"format {name!r} holds {' and '.join(found.kinds)}, {source.name} is neither; use 'files'",
        )
    conflict = _conflict(found, TRAIN in case.passes, case.input.augment == "random", case.input.on_error == "skip")
    if conflict:
        return "unsupported", conflict
    lacking = missing(case.data, source, name)
    return ("unavailable", lacking) if lacking else None


def _conflict(found: Format, trains: bool, random: bool, skips: bool) -> str | None:
    if random and not found.whole:
        return f"format {found.name!r} holds images that were cut when they were packed; use augment = 'centre'"
    if trains and not found.ordered:
        return (
            f"the reader of format {found.name!r} shuffles in its own way, and learning curves are compared over the "
            "same order of samples; use format = 'files'"
        )
    if skips and not found.ordered:
        return (
            f"format {found.name!r} holds images that were decoded when they were packed; leave bad ones out there "
            "(stagebench data convert --on-error skip) and use on_error = 'fail'"
        )
    return None
