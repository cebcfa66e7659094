"""A row: one case of a run, with everything a page, a table or an export says of it."""

from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from suite.analysis.budget import Budget, Difference, joined_differences, over_processes
from suite.analysis.comparability import FOREIGN, Key, comparable, group
from suite.analysis.leaders import Against
from suite.analysis.learning import Learnt, Staleness, joined_staleness
from suite.analysis.machine import FLOPS, Gpu, Peak, each_once
from suite.analysis.measured import Process, Profile, merge_layers
from suite.analysis.scaling import Scaling
from suite.analysis.stats import Interval, Rates, rates_of
from suite.contracts.case import Case
from suite.errors import Refused
from suite.foreign.folder import stated
from suite.results.proof import Proof
from suite.results.rank_report import Layer
from suite.results.records import Declared
from suite.results.stored import json_ready


@dataclass
class Row:
    """One case of a run, with everything a page says of it."""

    id: str
    case: Case
    outcome: str  # ok only if every record is; else the first other outcome
    reason: str
    processes: list[Process]
    marks: list[str] = field(default_factory=list)
    proof: Proof | None = None
    proof_reason: str = ""  # why there is none
    rates: Rates | None = None  # global samples/s: all ranks' samples / the slowest rank's wall time
    scaling: Scaling | None = None  # from one device
    over_nodes: Scaling | None = None  # from one node
    against: Against | None = None  # where its group has others
    peak: Peak | None = None  # what its devices do at most
    # Of imported trainings: (seconds, samples) of the first epochs.
    published: list[tuple[tuple[float, float], ...]] = field(default_factory=list)

    @property
    def refused(self) -> Refused:
        """Why it has no result."""
        return Refused(self.case.label, self.case.adapter, self.outcome, self.reason)

    @property
    def rate(self) -> Interval | None:
        """Global samples/s; the median over processes."""
        return self.rates.interval if self.rates else None

    @property
    def speed(self) -> float:
        """Its value alone; 0.0 without one."""
        return self.rates.value if self.rates else 0.0

    @property
    def utilisation(self) -> float | None:
        """Model FLOP utilisation: what the network needs at this speed, as a share of the devices' measured peak.

        None without a measured peak, and without a proof: it has counted the network's multiply-accumulates.
        """
        macs = self.proof.macs if self.proof else None
        return FLOPS * macs * self.rate.value / self.peak.flop_per_s if macs and self.rate and self.peak else None

    @property
    def joules_per_sample(self) -> float | None:
        """Of all hosts' processors and the GPUs that trained, whoever else used them; the median over processes.

        None where no counter could be read.
        """
        return _median([process.joules / process.samples for process in self.measured if process.joules])

    @property
    def rate_per_device(self) -> Interval | None:
        """The same for each device."""
        return self.rate.scaled(1 / self.case.placement.device_count) if self.rate else None

    @property
    def sound(self) -> bool:
        """Whether nothing speaks against it: it may stand beside other frameworks' rows."""
        return comparable(self.marks)

    @property
    def comparable(self) -> bool:
        """Whether its speed may stand beside other frameworks' in a chart or a comparison."""
        return self.rates is not None and self.sound

    @property
    def waited(self) -> float | None:
        """Seconds that input adds to a native step; median over processes."""
        return _median([process.input_wait.waited for process in self.measured if process.input_wait])

    @property
    def waited_share(self) -> float | None:
        """The same as a share of the native wall time."""
        return _median([process.input_wait.share for process in self.measured if process.input_wait])

    @property
    def waited_interval(self) -> Difference | None:
        """Of that share; None where no blocks in turns give one."""
        waits = [process.input_wait.interval for process in self.measured if process.input_wait]
        known = [one for one in waits if one]
        return joined_differences(known) if known else None

    @cached_property
    def reader(self) -> Rates | None:
        """Samples/s of all ranks' readers together when nothing else runs (io_only); None without that pass."""
        alone = {one.round: one.input_wait.alone for one in self.measured if one.input_wait}
        return rates_of({at: steps for at, steps in alone.items() if steps.size}, self.case.global_batch)

    @property
    def memory(self) -> list[int]:
        """Bytes that each rank held at most, over all processes: on its devices where the framework says, else all."""
        known = [[each.device_bytes or each.host_bytes for each in one.memory] for one in self.processes if one.memory]
        return [max(each) for each in zip(*known, strict=False)]

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """What each of its GPUs did, over all processes."""
        return each_once(gpu for process in self.processes for gpu in process.gpus)

    @property
    def staleness(self) -> Staleness | None:
        """Of asynchronous workers, over all processes."""
        return joined_staleness([process.staleness for process in self.processes if process.staleness])

    @property
    def declared(self) -> Declared | None:
        """What its adapter declared when it was measured; None without a record, and of format 1."""
        return next((process.about.declared for process in self.processes if process.about.declared), None)

    @property
    def synchronous(self) -> bool:
        """Whether its devices together do what one does with the joined batch; format 1 has stale weights to show."""
        return self.declared.synchronous if self.declared else self.staleness is None

    @property
    def group(self) -> Key:
        """Rows of the same group may be compared."""
        return group(self.case, self.synchronous)

    @property
    def several_devices(self) -> bool:
        """Whether scaling is a question."""
        return self.case.placement.device_count > 1

    @property
    def several_ranks(self) -> bool:
        """Whether one may wait for another."""
        return self.case.placement.ranks > 1

    @property
    def measured(self) -> list[Process]:
        """The processes with a speed."""
        return [process for process in self.processes if process.rate]

    @property
    def lessons(self) -> list[Learnt]:
        """What the processes of a case that trains have learnt."""
        return [process.learnt for process in self.processes if process.learnt and process.outcome == "ok"]

    @property
    def answers(self) -> int:
        """Processes that gave what the case asked for: a speed, or a training."""
        return len(self.measured) or len(self.lessons)

    @cached_property
    def budget(self) -> Budget | None:
        """The closed budget, medians over processes."""
        return over_processes([process.budget for process in self.measured if process.budget])

    @cached_property
    def layers(self) -> list[Layer] | None:
        """Each layer's seconds, the median over processes."""
        tables = [process.layers for process in self.measured if process.layers]
        return merge_layers(tables, median) if tables else None

    @property
    def kernels(self) -> Profile | None:
        """Of the first process that ran the pass `kernels`."""
        return next((process.kernels for process in self.processes if process.kernels), None)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; every step stays in the record files."""
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
            "processes": [_process(process) for process in self.processes],
            "budget_seconds": self.budget and self.budget.to_dict(),
            "input": {
                "waited_seconds": self.waited,
                "waited_share": self.waited_share,
                "reader_samples_per_second": self.reader and self.reader.interval,
            },
            "staleness": self.staleness,
            "scaling": self.scaling,
            "scaling_over_nodes": self.over_nodes,
            "against_fastest": self.against,
            "layers": self.layers,
            "training": [_training(lesson) for lesson in self.lessons] or None,
        }
        return json_ready(values)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _process(process: Process) -> dict[str, Any]:
    return {
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


def _training(lesson: Learnt) -> dict[str, Any]:
    return {
        **asdict(lesson),
        "best_accuracy": lesson.best,
        "target_epoch": lesson.target_epoch,
        "target_seconds": lesson.target_seconds,
    }
