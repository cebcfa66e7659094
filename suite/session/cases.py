"""A case of a session: its launch, what its adapter declares, and the cases with which it takes turns."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Case
from stagebench.suite.data.trace import arrival_times
from stagebench.suite.errors import Unavailable
from stagebench.suite.plan.collectives import offers
from stagebench.suite.plugin_errors import ask
from stagebench.suite.processes.attempt import Attempt, Limits
from stagebench.suite.processes.hosts import here
from stagebench.suite.processes.interpreters import find
from stagebench.suite.processes.launch import Launch, launch_of, started
from stagebench.suite.results.records import Declared
from stagebench.suite.session.turns import MOST
from stagebench.suite.text import grouped
from stagebench.suite.worker.haproxy import NO_HAPROXY, haproxy
from stagebench.suite.worker.messages import Kernels, Notes, Pass, Phase, Training, Try, of_type
from stagebench.suite.worker.pass_kinds import BY_NAME, KERNELS, SERVER, SPEEDS, TRAIN

LIMITS = {"time": "time_limit", "silence": "silence_limit"}  # by the reason of a watchdog


@dataclass(frozen=True)
class Runnable:
    """A case with its launch."""

    case: Case
    launch: Launch


def launch_of_case(case: Case, interpreters: dict[str, str], bundle_folder: Path) -> Launch:
    """Return the launch of a case, within its own limits; Unavailable if this machine lacks something."""
    limits, interpreter = Limits(case.time_limit, case.silence_limit), None
    if case.collective:  # a backend may have an environment of its own
        interpreter = find(offers()[case.collective.backend].needs, interpreters)
    launch = launch_of(case, limits, interpreters, bundle_folder, interpreter)
    place, name = case.placement, case.serving.model_server
    if case.infers and place.nodes > 1 and all(map(here, place.hosts[:1])) and not haproxy():
        raise Unavailable(NO_HAPROXY)
    server = started(name, interpreters, bundle_folder.with_name(f"model-server-{name}"))
    try:
        return replace(launch, model_server=server, trace=arrival_times(case.serving.arrivals))
    except ValueError as error:
        raise Unavailable(str(error)) from None


def declared_of(case: Case, adapter: Adapter) -> Declared:
    """Return what an adapter declares for a case."""
    able = adapter.capabilities
    strategy = able.strategy(case.strategy)
    return Declared(
        knob_defaults=knobs.values(able.knobs),
        synchronous=ask(adapter, "synchronous", case),
        separable=strategy.separable if strategy else (),
        model_parallel_size=ask(adapter, "model_parallel_size", case),
        microbatches=ask(adapter, "microbatches", case),
    )


def turn_key(item: Runnable) -> Hashable:
    """Return what the cases of one comparison share; None if a waiting case would take time from the others."""
    case, place, adapter = item.case, item.case.placement, item.launch.adapter
    if case.speed_pass not in case.passes:
        return None
    working = ask(adapter, "sidecars", case) or not ask(adapter, "synchronous", case)
    busy = working or case.straggler or place.device != "cpu"
    if busy or not item.launch.here or case.input.page_cache == "cold":
        return None
    return case.speed_pass, case.workload, case.data, case.batch, case.precision, place.device_count, place.threads


def turn_groups(items: list[Runnable]) -> list[list[Runnable]]:
    """Join both tunings if they are few enough; else split them, since comparisons within a tuning come first."""
    by_tuning = list(grouped(items, lambda item: item.case.tuning).values())
    return [list(chain(*by_tuning))] if len(items) <= MOST else by_tuning


def slowed(case: Case, attempt: Attempt) -> str:
    """Return the addition to the reason of a straggler's case that passed a limit; "" for any other case."""
    stopped = attempt.evidence["stopped"] or {}
    limit = LIMITS.get(stopped.get("why", ""))
    if not case.straggler or limit is None:
        return ""
    rank, share = case.placement.ranks - 1, case.straggler
    return (
        f"; rank {rank} is a straggler that lost {share:.0%} of its time, as the plan asks: raise {limit} = "
        f"{getattr(case, limit):g} or lower straggler = {share:g}"
    )


def pass_ends(attempt: Attempt) -> dict[str, str]:
    """Return the outcome of each pass that began, in order: "ok" once every rank has sent its result.

    A pass that an adapter could not measure has a note instead of an outcome.
    """
    begun: dict[str, None] = {}
    finished, noted = Counter[str](), set[str]()
    for sent in attempt.messages.values():
        begun |= dict.fromkeys(phase.name for phase in of_type(Phase, sent) if phase.name in BY_NAME)
        names = {each.name for each in of_type(Pass, sent)}
        finished.update(names | {KERNELS for _ in of_type(Kernels, sent)} | {TRAIN for _ in of_type(Training, sent)})
        finished.update({SERVER for _ in of_type(Try, sent)})
        noted |= {name for each in of_type(Notes, sent) for name in each.notes}
    ranks, ends = len(attempt.messages), dict[str, str]()
    for name in begun:
        if finished[name] == ranks:
            ends[name] = "ok"
        elif name not in noted:
            ends[name] = attempt.outcome
    if attempt.outcome == "diverged" and ends:  # a pass is sent before its loss is judged
        ends[next(reversed(ends))] = "diverged"
    return ends


def kept(attempt: Attempt) -> str:
    """Return the addition to the reason of an attempt that ended badly after its speed was measured; else ""."""
    ends = pass_ends(attempt)
    if attempt.outcome in ("ok", "diverged") or not any(ends.get(name) == "ok" for name in SPEEDS):
        return ""
    broken = [name for name, end in ends.items() if end != "ok"]
    place = f"in the pass {broken[0]}" if broken else f"after the pass {next(reversed(ends))}"
    return f"; it happened {place}: the speed, measured before, is kept"
