"""In which form a case's data are read: the files as they stand, or packed for the framework's own reader."""

from collections.abc import Callable, Collection
from pathlib import Path

from suite.contracts.adapter import KINDS, Adapter, Capabilities, Format
from suite.contracts.case import TRAIN, Case
from suite.data.sets import kind_of
from suite.plan.sweep import Choice
from workloads.catalogue import Workload

FILES, BEST = "files", "best"
Missing = Callable[[str, Path, Format, Workload], str | None]  # suite.data.records.missing, or what remembers it


def form(choice: Choice, adapter: Adapter, able: Capabilities, source: Path | None) -> str:
    """The format that a choice comes to: "best" is the adapter's own, where it can serve here; memory has none."""
    if choice["data_mode"] == "memory" or choice["format"] == FILES:
        return FILES
    if choice["format"] != BEST:
        return str(choice["format"])
    if source is None:
        return FILES
    passes, kind = choice.block.passes, kind_of(source)
    fitting = (
        each.name
        for each in able.formats
        if kind in each.kinds
        and not _conflict(each, passes, choice["augment"], choice["on_error"])
        and not adapter.unreadable(each)
    )
    return next(fitting, FILES)


def refusal(
    adapter: Adapter, able: Capabilities, case: Case, source: Path | None, workload: Workload, missing: Missing
) -> tuple[str, str] | None:
    """(outcome, reason) when the case cannot be read in its format; None when it can."""
    name = case.input.format
    if name == FILES or source is None:
        return None
    found, kind = able.format(name), kind_of(source)
    if found is None:
        offers = ", ".join((FILES, *(each.name for each in able.formats)))
        return "unsupported", f"{case.adapter} does not read format {name!r}; it reads {offers}"
    if kind not in found.kinds:
        holds = " and ".join(KINDS[each] for each in found.kinds)
        return "unsupported", f"format {name!r} holds {holds}, {source.name} is none of them; use format = 'files'"
    conflict = _conflict(found, case.passes, case.input.augment, case.input.on_error)
    if conflict:
        return "unsupported", conflict
    lacking = adapter.unreadable(found) or missing(case.data, source, found, workload)
    return ("unavailable", lacking) if lacking else None


def _conflict(found: Format, passes: Collection[str], augment: str, on_error: str) -> str | None:
    if augment == "random" and not found.whole:
        return f"format {found.name!r} holds images that were cut when they were packed; use augment = 'centre'"
    if TRAIN in passes and not found.ordered:
        return (
            f"the reader of format {found.name!r} shuffles in its own way, and learning curves are compared over the "
            "same order of samples; use format = 'files'"
        )
    if on_error == "skip" and not found.ordered:
        return (
            f"format {found.name!r} holds images that were decoded when they were packed; leave bad ones out there "
            "(stagebench data convert --on-error skip) and use on_error = 'fail'"
        )
    return None
