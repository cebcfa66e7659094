"""The cases of a plan: every value resolved, every case either runnable or refused with a reason."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import Adapters, Strategy
from stagebench.suite.contracts.case import AUTO, Case, Placement, check_counts, optimiser_settings
from stagebench.suite.contracts.launcher import Launchers, starters
from stagebench.suite.contracts.model_server import INPROCESS
from stagebench.suite.data.compatibility import Fit, fit
from stagebench.suite.data.sets import missing_records
from stagebench.suite.data.trace import arrival_times, with_digest
from stagebench.suite.errors import RequestError
from stagebench.suite.files import expanded
from stagebench.suite.plan.checks import Names, check_placement, format_of, hosts_of, refusal, refused_format
from stagebench.suite.plan.model import WHOLE, Choice, choices, count
from stagebench.suite.plan.model_servers import one_a_host, server_problems, serving_of, unkept
from stagebench.suite.plan.read import Plan
from stagebench.suite.plugins import graph_of, model_servers
from stagebench.suite.processes.hosts import here
from stagebench.suite.text import chosen, known, shown
from stagebench.suite.worker.case_parts import ARRIVALS, FLOORS, ROUNDS, Input, Schedule, Serving, Training
from stagebench.suite.worker.pass_kinds import BY_NAME, NAMES, NATIVE, OFFLINE, PASS_KINDS, TRAIN, USUAL, USUAL_LOADS
from stagebench.workloads.catalogue import Workload

# The keys of a choice that a case has unchanged.
COPIED = ("precision", "tuning", "clip_norm", "straggler", "seed", "readers", "time_limit", "silence_limit")


class Resolved(NamedTuple):
    """A case of a plan. `outcome` is None (it can run), "unsupported" or "unavailable".

    `reason` says why it cannot run; for one that can, it is empty or a note about how it came about.
    """

    case: Case
    outcome: str | None
    reason: str


def resolve(
    plan: Plan,
    adapters: Adapters,
    launchers: Launchers,
    workloads: Mapping[str, Workload],
    hosts: Sequence[str] = (),
    launcher: str = AUTO,
    told: Callable[[int, float], None] = lambda cases, seconds: None,
) -> list[Resolved]:
    """Return every case of the plan, in its order, each id once; RequestError lists all problems of the plan.

    `hosts` are for the blocks that name none: a case on n nodes takes the first n. `launcher` starts the cases that
    leave it open. `told` is called before the cases are resolved, with their number and the least seconds of their
    passes.
    """
    if not adapters or not workloads:
        raise RequestError(
            "no adapter or no workload is registered: stagebench itself is not installed; pip install it"
        )
    chosen("launcher", [launcher], (AUTO, *launchers))
    problems = replace(plan.problems, found=plan.problems.found.copy())  # the plan may be resolved again
    maker = _Maker(problems, adapters, launchers, workloads, plan, hosts, launcher, told)
    found = list(maker.all())
    problems.raise_any()
    return _merged(found)


@dataclass
class _Maker(Names):
    plan: Plan
    hosts: Sequence[str]
    asked: str  # the launcher
    told: Callable[[int, float], None]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model_servers = model_servers()
        self.graph = functools.cache(lambda name: graph_of(self.workloads[name]))
        # A large set's listing takes seconds.
        self.missing = functools.cache(missing_records)
        self.looked_up = functools.cache(
            lambda data, name: fit(data, self.workloads[name].dataset, self.graph(name), self.plan.file.parent)
        )

    def all(self) -> Iterator[tuple[Resolved, str]]:
        """Yield (case, its place in the plan); problems go to the plan's list."""
        scale, sampling, most = self.plan.scale, self.plan.sampling, self.plan.most_cases
        named = [written for written in self.plan.blocks if self.check(written)]
        scaled = [(written, scale.scaled(written.block) if scale else written.block) for written in named]
        blocks = [(written, block) for written, block in scaled if block]
        cases = sum(count(block) for _, block in blocks)
        seconds = sampling.processes * sampling.seconds * sum(count(block) * len(block.passes) for _, block in blocks)
        if cases > most:
            raise RequestError(
                f"{self.plan.file}: the plan spells {cases:,} cases, which take {seconds / 86400:,.0f} days at least, "
                f"and it allows {most:,}; take values out, or allow more: most_cases = {cases} at the plan's top, or "
                f"--set most_cases={cases}"
            )
        self.told(cases, seconds)
        for written, block in blocks:
            for choice in choices(written, block):
                launcher = self.launcher(choice)
                check_placement(choice, launcher, self.launchers, hosts_of(choice, self.hosts), self.problems)
                self.check_training(choice)
                self.check_batches(choice)
                for key, problem in server_problems(choice, self.model_servers):
                    self.add(choice, key, problem)
                yield self.resolved(choice, launcher), self.problems.at(written.head)

    def add(self, choice: Choice, key: str, problem: str) -> None:
        """Add a problem of a choice's key."""
        self.problems.add(choice.written.path(key), problem)

    def check_training(self, choice: Choice) -> None:
        """Add the problems of the pass `train`."""
        passes = choice.block.passes
        if TRAIN not in passes:
            if choice["batch"] == WHOLE:
                whole = "batch = 'all' is every sample that the pass 'train' learns from"
                self.add(choice, "batch", f"{whole}; for other passes write a number")
            return
        if len(passes) > 1:
            own = "write passes = ['train'] in a block of its own"
            self.add(choice, "passes", f"the pass 'train' learns, the others measure speed: {own}")
        if choice["data"] == "synthetic":
            problem = "the pass 'train' needs real data: set data to 'real', a data set's name or a folder"
            self.add(choice, "passes", problem)
        else:
            found, share = self.fit(choice), self.plan.training.held_out
            held_out = round(found.samples * share)
            if not found.outcome and not 0 < held_out < found.samples:
                problem = (
                    f"[training] held_out = {share:g} tests with {held_out} of the {found.samples} samples of "
                    f"{choice['data']}, and learning and testing take one at least; name a larger set"
                )
                self.add(choice, "data", problem)
        rising, epochs = choice["warmup_epochs"], self.plan.training.epochs
        if choice["decay"] != "none" and rising >= epochs:
            problem = (
                f"warmup_epochs = {rising:g} fills all epochs ({epochs}), so that decay = {choice['decay']!r} never "
                "begins; take fewer, or train for longer ([training] epochs)"
            )
            self.add(choice, "warmup_epochs", problem)

    def check_batches(self, choice: Choice) -> None:
        """Add a batch that does not divide over all devices, and a random crop of what cannot be cropped."""
        devices, batch = choice["nodes"] * choice["ranks"] * choice["devices"], choice["batch"]
        if choice["scaling"] == "strong" and batch != WHOLE and batch % devices:
            problem = (
                f"batch = {batch} is for all devices together (scaling = 'strong'), and {batch} samples do not divide "
                f"over {devices} devices; choose a multiple of {devices}"
            )
            self.add(choice, "batch", problem)
        if choice["augment"] != "random" or choice["data"] == "synthetic":
            return
        shape = self.graph(choice["workload"]).input_shape
        if len(shape) != 3 or shape[0] != 3:
            problem = f"augment = 'random' crops photographs, which {choice['workload']} does not take; write 'centre'"
            self.add(choice, "augment", problem)
        elif choice["data_mode"] == "memory":
            problem = "augment = 'random' cuts every sample anew, data_mode = 'memory' keeps it as cut; choose one"
            self.add(choice, "augment", problem)

    def launcher(self, choice: Choice) -> str:
        """Return the launcher's name; "auto" is the strategy's first that is installed and reaches the nodes."""
        asked = self.asked if choice["launcher"] == AUTO else str(choice["launcher"])
        if asked != AUTO:
            return asked
        strategy = self.capabilities[choice["adapter"]].strategy(choice["strategy"])
        offers = starters(strategy, self.launchers) if strategy else ()
        near = choice["nodes"] == 1 and all(map(here, hosts_of(choice, self.hosts)))
        installed = [name for name in offers if name in self.launchers]
        reaching = [name for name in installed if near or self.launchers[name].several_hosts]
        return next(iter([*reaching, *installed, *offers]), AUTO)

    def resolved(self, choice: Choice, launcher: str) -> Resolved:
        adapter = self.adapters[choice["adapter"]]
        capabilities = self.capabilities[adapter.name]
        workload, graph = self.workloads[choice["workload"]], self.graph(choice["workload"])
        found = self.fit(choice)
        asked = knobs.values(capabilities.knobs, choice.knobs)
        case = self.case(choice, launcher).on(data=found.data, knobs=asked)
        try:
            check_counts(case.placement, case.batch, case.sampling.processes)
        except ValueError as error:
            self.add(choice, "nodes", f"{error}; take fewer")
        case = case.on(input=_input(choice, format_of(choice, adapter, capabilities, found.path)))
        strategy = capabilities.strategy(case.strategy)
        kept = measurable(strategy, case.passes)
        refused = refusal(adapter, capabilities, case, graph, self.launchers)
        refused = refused or idle(case, kept, strategy is not None and strategy.infers)
        case = case.on(passes=kept or case.passes)
        case = case.on(serving=serving_of(case, self.model_servers))
        server = case.serving.model_server
        refused = refused or unkept(case, self.model_servers) or one_a_host(case, self.model_servers)
        if refused:
            return Resolved(case, "unsupported", refused)
        if server not in (INPROCESS, *self.model_servers):
            names = known(server, (INPROCESS, *self.model_servers))
            return Resolved(case, "unavailable", f"no plugin brings the model server {shown(server)}; {names}")
        if launcher not in self.launchers:
            named = f"the launcher {launcher!r}"
            wanted = f"a launcher for {adapter.name}/{case.strategy}" if launcher == AUTO else named
            return Resolved(case, "unavailable", f"no plugin brings {wanted}; install one that does")
        unread = None
        if not found.outcome:
            unread = refused_format(adapter, capabilities, case, found.path, workload, self.missing)
        return Resolved(case, *(unread or (found.outcome, found.reason)))

    def fit(self, choice: Choice) -> Fit:
        """Return the choice's data as resolved for its workload; each pair is looked up once."""
        found = self.looked_up(choice["data"], choice["workload"])
        if found.outcome == "wrong":
            index = choice.written.block.data.index(choice["data"])
            self.problems.add(choice.written.path("data", index), found.reason)
        return found

    def batch(self, choice: Choice, devices: int) -> int:
        """Return the samples per device; "all" and a batch of strong scaling are divided over all devices."""
        batch: int = choice["batch"]
        if choice["batch"] == WHOLE:
            samples = self.fit(choice).samples
            batch = samples - round(samples * self.plan.training.held_out)  # as stagebench.suite.worker.sources cuts
        elif choice["scaling"] == "weak":
            return batch
        return max(1, batch // devices)

    def arrivals(self, choice: Choice) -> str:
        """Return how queries arrive: a trace by its full path and digest."""
        word: str = choice["arrivals"]
        if word in ARRIVALS:
            return word
        path, least = str((self.plan.file.parent / expanded(word)).absolute()), FLOORS[choice["bound_share"]]
        try:
            word = with_digest(path)
            queries = ROUNDS * len(arrival_times(word))
            if queries < least:
                raise ValueError(
                    f"the trace {path} has {queries} queries in {ROUNDS} turns, and bound_share = "
                    f"{choice['bound_share']:g} wants {least}; write a lower share, or more queries"
                )
        except ValueError as error:
            self.add(choice, "arrivals", str(error))
        return word

    def case(self, choice: Choice, launcher: str) -> Case:
        block, workload = choice.block, self.workloads[choice["workload"]]
        placement = Placement(
            ranks_per_node=choice["ranks"],
            launcher=launcher,
            memory_limit=int(choice["memory_limit"]),
            hosts=hosts_of(choice, self.hosts),
            **{key: choice[key] for key in ("nodes", "devices", "device", "threads", "binding", "share_devices")},
        )
        strong = choice["scaling"] == "strong" and placement.device_count > 1
        batch = self.batch(choice, placement.device_count)
        return Case(
            adapter=choice["adapter"],
            strategy=choice["strategy"],
            workload=workload.name,
            placement=placement,
            batch=batch,
            scaling="strong" if strong else "weak",
            **optimiser_settings(choice["optimiser"], workload, batch * placement.device_count, choice["lr"]),
            passes=tuple(name for name in NAMES if name in block.passes),
            sampling=self.plan.sampling,
            training=self.plan.training if TRAIN in block.passes else Training(),
            schedule=Schedule(choice["warmup_epochs"], choice["decay"]) if TRAIN in block.passes else Schedule(),
            serving=Serving(*(choice[key] for key in Serving._fields))._replace(arrivals=self.arrivals(choice)),
            graph_digest=self.graph(workload.name).digest,
            **{key: choice[key] for key in COPIED},
        )


def _input(choice: Choice, form: str) -> Input:
    """Return how real data are read; the default for synthetic data, whose cases must not differ in it."""
    if choice["data"] == "synthetic":
        return Input()
    keys = ("page_cache", "prefetch", "repeat", "augment", "on_error")
    return Input(mode=choice["data_mode"], format=form, **{key: choice[key] for key in keys})


def measurable(strategy: Strategy | None, passes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the passes without those of stages that the strategy cannot separate.

    A strategy that infers has loads alone: the usual ones if a plan names no passes, else those that it names, and
    `offline`, which gives the speed. A strategy that trains has none.
    """
    if strategy and strategy.infers:
        named = tuple(name for name in passes if BY_NAME[name].infers)
        return USUAL_LOADS if passes == USUAL else (OFFLINE, *(name for name in named if name != OFFLINE)) * bool(named)
    passes = tuple(name for name in passes if not BY_NAME[name].infers)
    stages = {name: BY_NAME[name].only_stage for name in passes}
    return tuple(name for name in passes if not (strategy and stages[name]) or stages[name] in strategy.separable)


def empty_passes(case: Case) -> dict[str, str]:
    """Return the passes that measure nothing of a case, with the reason."""
    devices, reads = case.placement.device_count, case.data != "synthetic"
    return {kind.name: why for kind in PASS_KINDS if (why := kind.skipped(devices, reads))}


def idle(case: Case, passes: tuple[str, ...], infers: bool) -> str | None:
    """Return why none of the passes would measure anything; None if one does."""
    empty = empty_passes(case)
    if not passes and infers != any(BY_NAME[name].infers for name in case.passes):
        does, other = ("infers", OFFLINE) if infers else ("trains", NATIVE)
        named = ", ".join(case.passes)
        return f"{case.adapter}/{case.strategy} {does}, which passes = {named} do not measure; add {other!r} to them"
    reasons = {empty.get(name) for name in passes} or {f"{case.adapter}/{case.strategy} cannot tell its exchange apart"}
    if None in reasons:
        return None
    why = "; ".join(sorted(str(reason) for reason in reasons))
    return f"passes = {', '.join(case.passes)} measure nothing here: {why}; add {NATIVE!r} to them"


def _merged(found: list[tuple[Resolved, str]]) -> list[Resolved]:
    """Return each id once, at its first place, with a note if another block spells it again."""
    kept: dict[str, tuple[Resolved, set[str]]] = {}
    for resolved, where in found:
        case_id = resolved.case.id
        if case_id not in kept:
            kept[case_id] = (resolved, {where})
            continue
        first, places = kept[case_id]
        if where not in places and first.outcome is None:
            note = "; ".join(filter(None, (first.reason, f"also spelt at {where}, merged")))
            first = first._replace(reason=note)
        kept[case_id] = (first, places | {where})
    return [resolved for resolved, _ in kept.values()]
