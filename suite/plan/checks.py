"""The reasons against a block or a case.

An unknown name or an impossible placement is an error of the plan (`Names`, `check_placement`). A case that its adapter
cannot do is no error: it is `unsupported`, with the reason (`refusal`), or `unavailable` if this machine lacks
something for its reader (`refused_format`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import KINDS, Adapter, Adapters, Capabilities, Format, Strategy
from stagebench.suite.contracts.case import AUTO, Case
from stagebench.suite.contracts.launcher import Launchers, starters
from stagebench.suite.data.sets import kind_of
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.model import Choice, Written
from stagebench.suite.plan.model_servers import serves
from stagebench.suite.plan.problems import Problems
from stagebench.suite.plugin_errors import ask
from stagebench.suite.processes.hosts import here
from stagebench.suite.text import known
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.machine import cores
from stagebench.suite.worker.pass_kinds import SERVER, TRAIN
from stagebench.suite.worker.pipeline_stages import Stage, check_blocks, stages
from stagebench.workloads.catalogue import Workload
from stagebench.workloads.graph import Graph

# By the values of `Strategy.cut`: each raises Unsupported for a network that cannot be cut into that number of parts.
INTO_STAGES: dict[str, Callable[[Graph, int], list[Stage]]] = {
    "layers": stages,
    "layers where one value crosses": partial(stages, one_value=True),
}
CUTS: dict[str, Callable[[Graph, int], object]] = {**INTO_STAGES, "branches": check_blocks}
FILES, BEST = "files", "best"  # formats of every adapter
Missing = Callable[
    [str, Path, Format, Workload], str | None
]  # stagebench.suite.data.sets.missing_records, perhaps cached


@dataclass
class Names:
    """Checks the names of blocks against what is registered."""

    problems: Problems
    adapters: Adapters
    launchers: Launchers
    workloads: Mapping[str, Workload]

    def __post_init__(self) -> None:
        self.capabilities = {name: adapter.capabilities for name, adapter in self.adapters.items()}
        offered = self.capabilities.values()
        self.registered: dict[str, Collection[str]] = {
            "adapter": list(self.adapters),
            "workload": self.workloads,
            "launcher": [AUTO, *self.launchers],
            "format": [FILES, BEST, *(form.name for each in offered for form in each.formats)],
            "precision": sorted({name for each in offered for name in each.all_precisions()}),
            "tuning": sorted({name for each in offered for name in each.tunings}),
        }

    def check(self, written: Written) -> bool:
        """Add this block's problems; return True if its choices can be checked one by one."""
        # Collected apart: a problem in [defaults] is found again in each block.
        earlier, self.problems.found = self.problems.found, set()
        for key, names in self.registered.items():
            self._each(written, key, names)
        used = [name for name in written.block.adapter if name in self.adapters]
        strategies = sorted({s.name for name in used for s in self.capabilities[name].strategies})
        if used:
            self._each(written, "strategy", strategies)
            self._knobs(written, used)
        clean = not self.problems.found
        self.problems.found |= earlier
        return clean and not written.broken & {"adapter", "workload", "strategy"}

    def _each(self, written: Written, key: str, names: Collection[str]) -> None:
        values = getattr(written.block, key)
        if not values and key not in written.broken:
            self.problems.add(written.head, f"this block names no {key}; known: {', '.join(names)}")
        for index, value in enumerate(values):
            try:
                if value in names:
                    continue
                hint = self._elsewhere(value, names) if key == "strategy" else known(value, names)
                problem = f"unknown {key} {value!r}; {hint}"
            except RequestError as error:  # of a workload's context
                problem = str(error)
            self.problems.add(written.path(key, index), problem)

    def _elsewhere(self, strategy: str, names: Collection[str]) -> str:
        """Return a hint: the other adapters that have the strategy, or the nearest name."""
        owners = [name for name, offered in self.capabilities.items() if offered.strategy(strategy)]
        if not owners:
            return known(strategy, names)
        return f"{', '.join(owners)} has it, this block's adapters have {', '.join(names)}"

    def _knobs(self, written: Written, used: list[str]) -> None:
        knobs = {name: knob for adapter in used for name, knob in self.capabilities[adapter].knobs.items()}
        for name, values in written.block.knobs.items():
            if name not in knobs:
                self.problems.add(
                    written.path("knobs", name),
                    f"unknown knob {name!r} for {', '.join(used)}; {known(name, sorted(knobs))}",
                )
                continue
            owners = [self.capabilities[adapter].knobs.get(name) for adapter in used]
            for index, value in enumerate(values):
                refused = [knob.problem(value) for knob in owners if knob is not None]
                if all(refused):
                    self.problems.add(written.path("knobs", name, index), f"knob {name} {refused[0]}")


# --- placement ----------------------------------------------------------------


def hosts_of(choice: Choice, given: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of a choice: its block's, else the first of those `given`; (): any."""
    if choice.block.hosts or not given:
        return tuple(choice.block.hosts)
    first = tuple(given[: choice["nodes"]])
    return () if choice["nodes"] == 1 and here(first[0]) else first


def check_placement(choice: Choice, name: str, launchers: Launchers, taken: Sequence[str], problems: Problems) -> None:
    """Add the problems that make this placement impossible for every adapter; `taken` are its hosts.

    `name` is the launcher's; it may be unknown.
    """
    launcher = launchers.get(name)
    written, nodes, named = choice.written, choice["nodes"], choice.block.hosts
    if nodes > 1 and launcher and not launcher.several_hosts:
        others = ", ".join(repr(each.name) for each in launchers.values() if each.several_hosts)
        problems.add(
            written.path("nodes"),
            f"nodes = {nodes}, but the launcher {name!r} knows only this machine; use nodes = 1 with more ranks, or a "
            f"launcher for several hosts ({others or 'none is installed'})",
        )
    if named and len(named) != nodes:
        problems.add(written.path("hosts"), f"{len(named)} hosts for nodes = {nodes}; name one host per node")
    bound = choice["binding"] == "cores"
    problem = ""
    if choice["device"] != "cpu":
        problem = f"loads processors, which does not slow a {choice['device']} device; leave it out"
    elif not bound:
        problem = "loads the last rank's cores, and binding = 'none' gives it none of its own; write binding = 'cores'"
    if choice["straggler"] and problem:
        problems.add(written.path("straggler"), f"straggler = {choice['straggler']:g} {problem}")
    there = cores()
    ranks, threads = choice["ranks"], choice["threads"] * choice["devices"]
    here_only = nodes == 1 and not taken and not (launcher and launcher.chooses_hosts)
    if bound and here_only and ranks * threads > there:
        problems.add(
            written.path("binding"),
            f"binding = 'cores' with {ranks} ranks of {threads} threads wants {ranks * threads} cores, "
            f"this machine offers {there}; lower ranks or threads, or write binding = 'none'",
        )


# --- the limits of an adapter ---------------------------------------------------


def refusal(adapter: Adapter, offered: Capabilities, case: Case, graph: Graph, launchers: Launchers) -> str | None:
    """Return why the adapter cannot do the case; None if it can, as far as is known without running it."""
    strategy = offered.strategy(case.strategy)
    if strategy is None:
        return (
            f"{adapter.name} has no strategy {case.strategy!r}; it has "
            f"{', '.join(offer.name for offer in offered.strategies)}"
        )
    return (
        _by_strategy(adapter, strategy, case, launchers)
        or _by_values(adapter, offered, case, graph)
        or _by_both(adapter, strategy, case, graph)
        or _by_launcher(adapter, case, launchers)
        or ask(adapter, "unsupported", case)
    )


def _by_strategy(adapter: Adapter, strategy: Strategy, case: Case, launchers: Launchers) -> str | None:
    ranks = case.placement.ranks
    if ranks > 1 and not (strategy.distributed or (strategy.infers and serves(case))):
        instead = f"; it drives several devices from one: devices = {ranks}" if strategy.several_devices else ""
        if strategy.infers and not instead:
            instead = "; several hosts answer behind a model server: add the pass 'server' and model_server = ..."
        does = "infers" if strategy.infers else "trains"
        return f"{adapter.name}'s strategy {case.strategy!r} {does} on one rank, not on {ranks}{instead}"
    if case.placement.devices > 1 and not strategy.several_devices:
        instead = f"; it takes a rank for each: ranks = {case.placement.devices}" if strategy.distributed else ""
        return (
            f"{adapter.name}'s strategy {case.strategy!r} drives one device per rank, "
            f"not {case.placement.devices}{instead}"
        )
    if strategy.infers and case.data != "synthetic":
        return f"{adapter.name}/{case.strategy} is asked for synthetic samples alone; use data = 'synthetic'"
    if strategy.infers and strategy.distributed and ranks > 1 and SERVER in case.passes:
        return (
            f"the load {SERVER!r}, like a model server, asks a predictor of one process, and {case.strategy} is one of "
            f"{ranks}; leave {SERVER!r} out of passes"
        )
    starting = starters(strategy, launchers)
    if case.placement.launcher not in (AUTO, *starting):
        return f"{adapter.name}/{case.strategy} is started by {', '.join(starting)}, not by {case.placement.launcher}"
    return None


def _by_values(adapter: Adapter, offered: Capabilities, case: Case, graph: Graph) -> str | None:
    for what, value, offers in (
        ("device", case.placement.device, offered.devices),
        ("precision", case.precision, offered.precisions_on(case.placement.device)),
        ("tuning", case.tuning, offered.tunings),
        ("optimiser", case.optimiser, offered.optimisers),
    ):
        if value not in offers:
            why = offered.refuses.get((what, value)) or (_elsewhere(offered, value) if what == "precision" else "")
            reason = f": {why}" if why else ""
            return f"{adapter.name} does not do {what} {value!r}{reason}; it does {', '.join(offers)}"
    if case.data != "synthetic" and not offered.real_data:
        return f"{adapter.name} does not read real data; use data = 'synthetic'"
    problem = knobs.refusal(adapter.name, offered.knobs, case.strategy, case.knobs)
    if problem:
        return problem
    kinds = {layer.kind for layer in graph.layers} if offered.layer_kinds else set()
    missing = sorted(kinds - set(offered.layer_kinds))
    return f"{adapter.name} has no layers of kind {', '.join(missing)}" if missing else None


def _elsewhere(offered: Capabilities, precision: str) -> str:
    """Return a hint to the kinds of devices on which the adapter does a precision; "" if on none."""
    devices = [device for device, found in offered.device_precisions.items() if precision in found]
    return f"it wants device = {' or '.join(map(repr, devices))}" if devices else ""


def _by_both(adapter: Adapter, strategy: Strategy, case: Case, graph: Graph) -> str | None:
    """Return a conflict between the strategy and values that are allowed one by one; None without one."""
    held, all_devices = ask(adapter, "model_parallel_size", case), case.placement.device_count
    if all_devices % held:
        return (
            f"{adapter.name}/{case.strategy} holds one network on {held} devices, and {all_devices} do not divide "
            f"by that; ask for {held} or {2 * held} of them"
        )
    if case.schedule.changing and not strategy.changing_rate:
        why = f" ({strategy.keeps_rate})" if strategy.keeps_rate else ""
        others = ", ".join(each.name for each in adapter.capabilities.strategies if each.changing_rate)
        return (
            f"{adapter.name}/{case.strategy} keeps one learning rate{why}; leave warmup_epochs and decay out of its "
            f"block, or take another strategy ({others or 'of another adapter'})"
        )
    if case.clip_norm and not strategy.clips:
        others = ", ".join(each.name for each in adapter.capabilities.strategies if each.clips)
        return (
            f"{adapter.name}/{case.strategy} does not clip gradients by their global norm; leave "
            f"clip_norm = {case.clip_norm:g} out of its block, or take another strategy "
            f"({others or 'of another adapter'})"
        )
    batch, pieces = case.batch * held, ask(adapter, "microbatches", case)
    if batch % pieces:
        return f"a batch of {batch} does not divide into microbatches = {pieces} equal pieces; choose a divisor"
    declared = adapter.capabilities.knobs
    values = {**knobs.values(declared, case.knobs), "device": case.placement.device, "precision": case.precision}
    values["optimiser"] = case.optimiser
    asked = [*values.items(), *(("kind", layer.kind) for layer in graph.layers)]
    refused = next((why for pair, why in strategy.refuses.items() if pair in asked), None)
    refused = refused or knobs.unmet(declared, values)
    if not refused and strategy.cut and held > 1:
        try:
            CUTS[strategy.cut](graph, ask(adapter, "parts", case))
        except Unsupported as error:
            refused = str(error)
    return refused


def _by_launcher(adapter: Adapter, case: Case, launchers: Launchers) -> str | None:
    launcher = launchers.get(case.placement.launcher)
    if launcher is None or launcher.mpi or not ask(adapter, "mpi", case):
        return None
    others = " or ".join(repr(each.name) for each in launchers.values() if each.mpi)
    return (
        f"ranks that {launcher.name!r} starts know of no MPI, by which {adapter.name}/{case.strategy} meet; "
        f"take the launcher {others or 'of a plugin that brings MPI'}, or leave its knobs to auto"
    )


# --- the format of the data ------------------------------------------------------


def format_of(choice: Choice, adapter: Adapter, offered: Capabilities, source: Path | None) -> str:
    """Return a choice's format: "best" is the adapter's first that can be read here; data in memory have none."""
    if choice["data_mode"] == "memory" or choice["format"] == FILES:
        return FILES
    if choice["format"] != BEST:
        return str(choice["format"])
    if source is None:
        return FILES
    passes, kind = choice.block.passes, kind_of(source)
    fitting = (
        each.name
        for each in offered.formats
        if kind in each.kinds
        and not _conflict(each, passes, choice["augment"], choice["on_error"])
        and not ask(adapter, "unreadable", each)
    )
    return next(fitting, FILES)


def refused_format(
    adapter: Adapter, offered: Capabilities, case: Case, source: Path | None, workload: Workload, missing: Missing
) -> tuple[str, str] | None:
    """Return (outcome, reason) if the case's data cannot be read in its format; None if they can."""
    name = case.input.format
    if name == FILES or source is None:
        return None
    form, kind = offered.format(name), kind_of(source)
    if form is None:
        return "unsupported", (
            f"{case.adapter} does not read format {name!r}; it reads "
            f"{', '.join((FILES, *(each.name for each in offered.formats)))}"
        )
    if kind not in form.kinds:
        return "unsupported", (
            f"format {name!r} holds {' and '.join(KINDS[each] for each in form.kinds)}, {source.name} is none of "
            "them; use format = 'files'"
        )
    conflict = _conflict(form, case.passes, case.input.augment, case.input.on_error)
    if conflict:
        return "unsupported", conflict
    reason = ask(adapter, "unreadable", form) or missing(case.data, source, form, workload)
    return ("unavailable", reason) if reason else None


def _conflict(form: Format, passes: Collection[str], augment: str, on_error: str) -> str | None:
    if augment == "random" and not form.whole:
        return f"format {form.name!r} holds images that were cut when they were packed; use augment = 'centre'"
    if TRAIN in passes and not form.ordered:
        return (
            f"the reader of format {form.name!r} shuffles in its own way, and learning curves are compared over the "
            "same order of samples; use format = 'files'"
        )
    if on_error == "skip" and not form.ordered:
        return (
            f"format {form.name!r} holds images that were decoded when they were packed; leave bad ones out there "
            "(stagebench data convert --on-error skip) and use on_error = 'fail'"
        )
    return None
