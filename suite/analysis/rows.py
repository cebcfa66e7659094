"""A row: one case of a run, with everything that a page, a table or an export shows of it."""

from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import fmean, median
from typing import Any

import numpy as np

from stagebench.suite.analysis.budget import Budget, Difference, joined_differences, over_processes
from stagebench.suite.analysis.comparability import FAILED_LATER, FOREIGN, Key, comparable, group
from stagebench.suite.analysis.latency import PERCENTILES, bound, words_of
from stagebench.suite.analysis.leaders import Against
from stagebench.suite.analysis.learning import Learnt, Staleness, joined_staleness
from stagebench.suite.analysis.machine import Gpu, Peak, each_once
from stagebench.suite.analysis.measured import Process, Profile, Startup, merge_layers
from stagebench.suite.analysis.serving import Kept, Served, served
from stagebench.suite.analysis.stats import Interval, Rates, rates_of
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import Refused
from stagebench.suite.results.foreign import stated
from stagebench.suite.results.records import Declared, Proof
from stagebench.suite.results.stored import json_ready
from stagebench.suite.worker.contract import LayerTimes
from stagebench.suite.worker.pass_kinds import SERVER

OPERATIONS = 2  # of a multiply-accumulate


@dataclass(frozen=True)
class Scaling:
    """Speed on N devices / (N x speed on one): 1 is ideal."""

    efficiency: Interval
    baseline_id: str
    baseline_label: str
    baseline_rate: float  # samples/s on one device

    @property
    def super_linear(self) -> bool:
        """True if even the interval's low end is above ideal: then the baseline deserves a look."""
        return self.efficiency.processes > 1 and self.efficiency.low > 1.0


@dataclass
class Row:
    """A case of a run; medians and means are over its processes."""

    id: str
    case: Case
    outcome: str  # ok only if every record is; else the first other outcome
    reason: str  # for another outcome than ok, or for a pass that failed after the speed was measured
    processes: list[Process]
    marks: list[str] = field(default_factory=list)
    proof: Proof | None = None
    proof_reason: str = ""  # for having no proof
    rates: Rates | None = None  # global samples/s: all ranks' samples / the slowest rank's wall time
    scaling: Scaling | None = None  # from one device
    over_nodes: Scaling | None = None  # from one node
    against: Against | None = None  # None: alone in its group
    peak: Peak | None = None  # of its devices together
    macs: int | None = None  # multiply-accumulates of a step, or a query, per sample; None without a peak or a proof
    tokens: int = 0  # of a sample, if each has a label
    # Of imported trainings: (seconds, samples) of the first epochs.
    published: list[tuple[tuple[float, float], ...]] = field(default_factory=list)

    @property
    def refused(self) -> Refused:
        """The reason for having no result, or no complete one."""
        outcome = FAILED_LATER if self.outcome == "ok" else self.outcome
        return Refused(self.case.label, self.case.adapter, outcome, self.reason)

    @property
    def rate(self) -> Interval | None:
        """Global samples/s."""
        return self.rates.interval if self.rates else None

    @property
    def speed(self) -> float:
        """The value of `rate` without its interval; 0.0 without one."""
        return self.rates.value if self.rates else 0.0

    @property
    def token_rate(self) -> Interval | None:
        """Global tokens/s; None where a sample has one label."""
        return self.rate.scaled(self.tokens) if self.rate and self.tokens else None

    @property
    def rate_per_device(self) -> Interval | None:
        """Samples/s of each device."""
        return self.rate.scaled(1 / self.case.placement.device_count) if self.rate else None

    @property
    def utilisation(self) -> float | None:
        """Model FLOP utilisation: what the network needs at this speed, as a share of the devices' measured peak.

        It counts what the network needs, not what a framework computes (Chowdhery and others, "PaLM", 2022, appendix
        B). None without a measured peak, or without a proof, or if the network is not installed.
        """
        if not (self.macs and self.rate and self.peak):
            return None
        return OPERATIONS * self.macs * self.rate.value / self.peak.flop_per_s

    @property
    def joules_per_sample(self) -> float | None:
        """Energy of all hosts' processors and the GPUs that trained; None if no counter could be read."""
        joules = [process.joules / process.samples for process in self.measured if process.joules]
        return median(joules) if joules else None

    @property
    def sound(self) -> bool:
        """True if no mark keeps it out of comparisons with other frameworks' rows."""
        return comparable(self.marks)

    @property
    def comparable(self) -> bool:
        """True if it has a speed that may be compared with other frameworks'."""
        return self.rates is not None and self.sound

    @property
    def waited(self) -> float | None:
        """Seconds that input adds to a native step: the mean over processes."""
        waits = [process.input_wait for process in self.measured]
        known = [wait.waited for wait in waits if wait and wait.waited is not None]
        return fmean(known) if known else None

    @property
    def computing_share(self) -> float | None:
        """The share of the native wall time in which devices do not wait for input; None without that measurement."""
        return 1 - self.waited_share.value if self.waited_share else None

    @property
    def startup(self) -> Startup | None:
        """The time to the end of the first step: each part is the median over processes."""
        known = [process.startup for process in self.measured if process.startup]
        return Startup(*map(median, zip(*known, strict=True))) if known else None

    @property
    def waited_share(self) -> Difference | None:
        """Input's share of the native wall time: the mean over processes, with its interval."""
        waits = [process.input_wait for process in self.measured]
        known = [wait.share for wait in waits if wait and wait.share]
        return joined_differences(known) if known else None

    @cached_property
    def reader(self) -> Rates | None:
        """Samples/s of all ranks' readers together when nothing else runs (io_only); None without that pass."""
        steps = {process.round: process.input_wait.alone for process in self.measured if process.input_wait}
        return rates_of({at: seconds for at, seconds in steps.items() if seconds.size}, self.case.global_batch)

    def latency(self, load: str, share: float) -> Interval | None:
        """Return the seconds that `share` of a load's queries keep, over processes; None of too few queries."""
        waits = {each.round: np.asarray(each.latencies[load]) for each in self.measured if load in each.latencies}
        found = {at: seconds for at, each in waits.items() if (seconds := bound(each, share))}
        return Rates(found).interval if found and len(found) == len(waits) else None

    @cached_property
    def served(self) -> Served | None:
        """The load `server`; None if no process ran it."""
        found = {process.round: (process.tries, process.model_server) for process in self.measured}
        return served(found, self.case.placement.nodes)

    @cached_property
    def kept(self) -> Kept | None:
        """The largest rate of the load `server` that keeps its bound."""
        return self.served.keeping(self.case.serving) if self.served else None

    @property
    def judged_by(self) -> Rates | None:
        """The rates that runs are compared by: with the load `server` those that keep the bound, else the speeds."""
        if SERVER not in self.case.passes:
            return self.rates
        return self.kept.rates if self.kept else None

    @property
    def unit(self) -> str:
        """The unit of `judged_by`."""
        return "queries/s" if SERVER in self.case.passes else "samples/s"

    @property
    def memory(self) -> list[int]:
        """Peak bytes of each rank over all processes: on its devices if the framework reports it, else on the host."""
        known = [process.memory for process in self.processes if process.memory]
        return [max(peak.device_bytes or peak.host_bytes for peak in peaks) for peaks in zip(*known, strict=False)]

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Each of its GPUs once, over all processes."""
        return each_once(gpu for process in self.processes for gpu in process.gpus)

    @property
    def staleness(self) -> Staleness | None:
        """The staleness of asynchronous workers, over all processes."""
        return joined_staleness([process.staleness for process in self.processes if process.staleness])

    @property
    def declared(self) -> Declared | None:
        """The adapter's declaration when it was measured; None without a record."""
        return next((process.about.declared for process in self.processes if process.about.declared), None)

    @property
    def synchronous(self) -> bool:
        """True if its devices together are equivalent to one device with the joined batch."""
        return self.declared.synchronous if self.declared else self.staleness is None

    @property
    def group(self) -> Key:
        """Rows of equal groups may be compared."""
        return group(self.case, self.synchronous)

    @property
    def several_devices(self) -> bool:
        return self.case.placement.device_count > 1

    @property
    def measured(self) -> list[Process]:
        """The processes with a speed."""
        return [process for process in self.processes if process.rate]

    @property
    def lessons(self) -> list[Learnt]:
        """The finished trainings of its processes."""
        return [process.learnt for process in self.processes if process.learnt and process.outcome == "ok"]

    @property
    def answers(self) -> int:
        """The number of processes with a speed, or a training."""
        return len(self.measured) or len(self.lessons)

    @cached_property
    def budget(self) -> Budget | None:
        """The closed budget, means over processes."""
        return over_processes([process.budget for process in self.measured if process.budget])

    @cached_property
    def layers(self) -> list[LayerTimes] | None:
        """Each layer's seconds, medians over processes."""
        tables = [process.layers for process in self.measured if process.layers]
        return merge_layers(tables, median) if tables else None

    @property
    def kernels(self) -> Profile | None:
        """The profile of the first process that ran the pass `kernels`."""
        return next((process.kernels for process in self.processes if process.kernels), None)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; every step stays in the record files."""
        processes = [
            {
                "repeat": process.repeat,
                "outcome": process.outcome,
                "samples_per_second": process.rate,
                "steps": process.step_seconds.size,
                "wall_seconds": process.wall,
                "losses": process.losses,
                "load": process.about.load,
                "noise": process.noise,
                "memory": process.memory,
                "gpus": process.gpus,
                "hosts": process.about.hosts,
                "wire": process.about.wire,
            }
            for process in self.processes
        ]
        trainings = [
            {
                **asdict(lesson),
                "best_accuracy": lesson.best,
                "target_epoch": lesson.target_epoch,
                "target_seconds": lesson.target_seconds,
                "target_joules": lesson.target_joules,
            }
            for lesson in self.lessons
        ]
        rule, kept = self.case.serving, self.kept
        values = {
            "id": self.id,
            "label": self.case.label,
            "case": stated(self.case) if FOREIGN in self.marks else self.case,
            "outcome": self.outcome,
            "reason": self.reason,
            "marks": self.marks,
            "comparable": self.comparable,
            "proof": self.proof and self.proof.key,
            "samples_per_second": self.rate,
            "samples_per_second_per_device": self.rate_per_device,
            "peak": self.peak,
            "model_flop_utilisation": self.utilisation,
            "joules_per_sample": self.joules_per_sample,
            "processes": processes,
            "budget_seconds": self.budget and self.budget.to_dict(),
            "input": {
                "waited_seconds": self.waited,
                "waited_share": self.waited_share and self.waited_share.value,
                "computing_share": self.computing_share,
                "reader_samples_per_second": self.reader and self.reader.interval,
            },
            "startup_seconds": self.startup and self.startup._asdict(),
            "staleness": self.staleness,
            "latency_seconds": {
                load: {words_of(share): self.latency(load, share) for share in shares}
                for load, shares in PERCENTILES.items()
                if any(load in process.latencies for process in self.measured)
            },
            "keeps_its_bound": kept and {"rate": kept.rate, "at_least": kept.at_least},
            "goodput": self.served
            and [
                {"offered_per_second": rate, "right_in_time_per_second": found}
                for rate, found in self.served.goodput(rule).items()
            ],
            "latency_parts_seconds": (at := self.served and self.served.at_bound(rule)) and at.stages,
            "scaling": self.scaling,
            "scaling_over_nodes": self.over_nodes,
            "against_fastest": self.against,
            "layers": self.layers,
            "training": trainings or None,
        }
        return json_ready(values)
