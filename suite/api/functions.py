"""stagebench in Python: measure a plan, read a run, compare, predict. `import stagebench` offers these functions.

Every function raises a StagebenchError for what the command line would refuse, and warns where the command line prints
a remark. Heavy modules are imported when a function is called, so that importing this module takes milliseconds.
"""

import gc
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stagebench.suite.errors import RequestError

if TYPE_CHECKING:
    from stagebench.suite.analysis.compare_runs import Comparison
    from stagebench.suite.analysis.links import Link
    from stagebench.suite.analysis.rows import Row
    from stagebench.suite.plan import Plan, Resolved
    from stagebench.suite.predict.prediction import Answer
    from stagebench.suite.results.run_folder import RunFolder

T = TypeVar("T")
Place = str | os.PathLike[str]  # of a file or folder


def plan(
    source: "Place | Mapping[str, Any] | None" = None,
    /,
    *,
    scale: str | None = None,
    set: Mapping[str, Any] | None = None,
    knobs: Mapping[str, Any] | None = None,
    **keys: Any,
) -> "Plan":
    """Return a plan: a ready-made one by its name, a TOML file, a mapping of its content, or the cases of `keys`.

    `keys` are those of a [[cases]] block, with `processes`, `steps` and `seconds`; of lists every combination is
    measured: `plan(adapter="pytorch", workload="mnist_small", ranks=[1, 2])`. `set` has other values for keys of the
    plan, such as `{"sampling.steps": 5}`. Relative paths start at the plan's file, else at the current folder.
    """
    from stagebench.suite.plan import load, networks
    from stagebench.suite.plan.options import from_content, from_keys
    from stagebench.suite.plan.overrides import checked
    from stagebench.suite.plugins import adapters

    overrides = checked(set or {})
    if source is None:
        if not keys or scale is not None:
            raise RequestError("name a plan, or describe cases by keys, such as adapter and workload, and by no scale")
        loaded = from_keys(keys, knobs or {}, adapters(), overrides)
    elif keys or knobs:
        raise RequestError(f"{[*keys, 'knobs'][0]} describes cases in place of a plan; change a plan's values by set")
    elif isinstance(source, Mapping):
        loaded = from_content(source, overrides)
        loaded = loaded if scale is None else loaded.scaled(scale)
    else:
        loaded = load(source if isinstance(source, str) else Path(source), scale, overrides)
    return networks.registered(loaded)


def cases(plan: "Plan") -> "list[Resolved]":
    """Return every case of a plan, with the reason if it cannot run; RequestError lists all of the plan's problems."""
    from stagebench.suite.plan import resolve
    from stagebench.suite.plugins import adapters, launchers, workloads

    return resolve(plan, adapters(), launchers(), workloads())


def run(
    plan: "Plan",
    folder: Place | None = None,
    *,
    proofs: bool = True,
    retry: bool = False,
    until: str | None = None,
    for_: str | None = None,
    progress: bool = True,
) -> "RunFolder":
    """Measure every case of a plan into `folder`, and return the run; a folder that has a part of it is resumed.

    The arguments are the options of `stagebench run`. Without `progress` nothing is printed. Raises Interrupted after
    Ctrl-C (the same call resumes), Unavailable if no case can run here. The outcome of each case is in its row.
    """
    from stagebench.suite.analysis.leaders import open_cases
    from stagebench.suite.cli.display import Display
    from stagebench.suite.results.run_folder import RunFolder
    from stagebench.suite.session.end_rule import end_rule
    from stagebench.suite.session.measure import measure_plan, run_folder
    from stagebench.suite.session.observer import Observer
    from stagebench.suite.session.resumable import Settings

    settings = Settings(proofs, retry, plan.profile, end_rule(until, for_), open_cases)
    measured = RunFolder(run_folder(plan.name, plan.profile) if folder is None else Path(folder))
    observer = Display() if progress else Observer()
    measure_plan(plan, cases(plan), measured, observer, settings, _warn, ("stagebench.run", plan.name))
    return measured


def open_run(folder: Place) -> "RunFolder":
    """Open a run folder, measured or imported, of trainings or of communication."""
    from stagebench.suite.results.run_folder import RunFolder

    return RunFolder.open(Path(folder), None)


def rows(run: "RunFolder | Place") -> "list[Row]":
    """Return a row for each case of a run of trainings, in the plan's order; some may not be measured yet."""
    from stagebench.suite.analysis.summary import summarise, unused_records

    folder = opened(run)
    if folder.about.of_comm:
        raise RequestError(f"{folder.path} measured communication; use links, or frame")
    found = unfrozen(summarise(folder))
    if note := unused_records(folder):
        _warn(note)
    return found


def links(run: "RunFolder | Place") -> "list[Link]":
    """Return each collective of a run of `stagebench comm` with its times, bandwidths and fit."""
    from stagebench.suite.analysis.links import links as links_of

    folder = opened(run)
    if not folder.about.of_comm:
        raise RequestError(f"{folder.path} measured trainings; use rows, or frame")
    return unfrozen(list(links_of(folder)))


def compare(
    before: Place, after: Place, *, threshold: float = 0.03, history: Sequence[Place] = (), across: Sequence[str] = ()
) -> "Comparison":
    """Compare two runs of the same cases; `.verdict` is that of the whole, `.cases` has each case's.

    `threshold` is the smallest relative change that matters. The other arguments are `stagebench compare`'s options.
    """
    from stagebench.suite.analysis import compare_runs
    from stagebench.suite.analysis.runs import MeasuredRun

    if not 0.001 <= threshold <= 0.5:
        raise RequestError(f"threshold = {threshold} should be a share from 0.001 to 0.5, such as 0.03 for 3 %")
    first, second, *others = [MeasuredRun.read(Path(path)) for path in (before, after, *history)]
    return unfrozen(compare_runs.compare(first, second, threshold, others, across))


def predict(source: Place | None = None, /, **keys: Any) -> "list[Answer]":
    """Predict the speed of synchronous training: of each network of a run, of a scenario's TOML file, or of numbers.

    `keys` are those of a scenario: `ranks=[8, 64]`, `schedule="all"`, `workload`, `alpha`, `beta`, …
    """
    from stagebench.suite.predict.request import request

    path = None if source is None else Path(source)
    file = path if path and path.suffix == ".toml" else None
    answers, refusals = request(file, keys, []).answers(None if file else path)
    for refusal in refusals:
        _warn(f"not predicted: {refusal}")
    return unfrozen(answers)


def opened(run: "RunFolder | Place") -> "RunFolder":
    """Return a run by its folder, or as it is given."""
    return open_run(run) if isinstance(run, str | os.PathLike) else run


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=3)


def unfrozen(result: T) -> T:
    """Return the result, with all objects back in the search for cycles, which reading takes them out of."""
    gc.unfreeze()
    return result
