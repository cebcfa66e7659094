"""The proofs of `stagebench verify`: every adapter x workload x strategy x tuning, each as a case.

An asynchronous strategy is proven on one device: see `stagebench.suite.proofs.make.configuration_of_proof`.
"""

from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import Adapter, Strategy
from stagebench.suite.contracts.case import OPTIMISERS, Case, Placement, optimiser_settings, rate_of_proof
from stagebench.suite.contracts.launcher import usual as usual_launcher
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.checks import refusal
from stagebench.suite.plugin_errors import ask
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.proofs.every_adapter import BEHAVIOUR, probed, probes_of
from stagebench.suite.text import chosen, known
from stagebench.suite.worker.case_parts import Schedule
from stagebench.suite.worker.pass_kinds import USUAL, USUAL_LOADS
from stagebench.workloads.catalogue import Workload
from stagebench.workloads.graph import Graph


@dataclass(frozen=True)
class Wanted:
    """A selection of proofs, and the devices on which they are made."""

    adapters: list[str] = field(default_factory=list)  # empty: all, also for the next three
    workloads: list[str] = field(default_factory=list)  # ... but large ones
    strategies: list[str] = field(default_factory=list)
    tunings: list[str] = field(default_factory=list)
    devices: int = 2  # for strategies of several devices
    device: str = "cpu"
    threads: int = 1  # per device, a plan's default: a proof holds only for its own number of threads
    precisions: list[str] = field(default_factory=list)  # empty: the adapter's usual one
    optimiser: str = "sgd"
    clip_norm: float = 0.0
    changing_rate: bool = False
    knobs: dict[str, Any] = field(default_factory=dict)  # by name; each for the adapters that have it


def cases_to_verify(wanted: Wanted) -> list[tuple[Case, str | None]]:
    """Return the cases, each with the reason if its adapter refuses it, or None.

    RequestError for an unknown name, or a selection without any case.
    """
    # The oracle is proven against finite differences by its own tests, not against itself.
    every, offered, ways = adapters(), workloads(), launchers()
    names = chosen("adapter", wanted.adapters, [name for name, each in every.items() if not each.oracle])
    usual = [name for name, each in offered.items() if not each.large]
    networks = {name: offered[name] for name in chosen("workload", wanted.workloads or usual, offered)}
    proven = [every[name] for name in names]
    chosen("tuning", wanted.tunings, sorted({tuning for each in proven for tuning in each.capabilities.tunings}))
    precisions = {each for adapter in every.values() for each in adapter.capabilities.all_precisions()}
    chosen("precision", wanted.precisions, sorted(precisions))
    chosen("optimiser", [wanted.optimiser], OPTIMISERS)
    _check_knobs(wanted.knobs, proven)
    found = [
        (case, refusal(each, each.capabilities, case, _graph(workload), ways))
        for each in proven
        for workload in networks.values()
        for strategy, tuning, precision in product(
            each.capabilities.strategies,
            each.capabilities.tunings,
            wanted.precisions or [each.capabilities.usual_precision(wanted.device)],
        )
        if (not wanted.strategies or strategy.name in wanted.strategies)
        if (not wanted.tunings or tuning in wanted.tunings)
        for case in [
            _case(each, workload, strategy, tuning, usual_launcher(strategy, ways), wanted).on(precision=precision)
        ]
    ]
    if not found:
        raise RequestError(
            f"no strategy named {', '.join(wanted.strategies) or 'at all'} in {', '.join(names)}; "
            "see `stagebench list strategies`"
        )
    return found


def for_every_network(cases: list[tuple[Case, str | None]]) -> list[tuple[Case, str | None]]:
    """Return the cases that prove, for each strategy and tuning of the cases, their probe and the behaviour.

    Both have the adapter's usual precision: another one is proven on the networks that are measured. An adapter or a
    strategy that cannot have a probe is refused it, with the reason.
    """
    found: dict[tuple[str, ...], tuple[Case, str | None]] = {}
    every, offered, ways = adapters(), workloads(), launchers()
    probes = {name: probes_of(_graph(offered[name])) for name in {case.workload for case, _ in cases}}
    for case, refused in cases:
        if refused is not None:
            continue
        adapter, named = every[case.adapter], (case.adapter, case.strategy, case.tuning)
        usual = case.on(precision=adapter.capabilities.usual_precision(case.placement.device))
        for probe in probes[case.workload]:
            proven = probed(usual, adapter, probe)
            why = refusal(adapter, adapter.capabilities, proven, _graph(probe), ways)
            found.setdefault((*named, probe.name), (proven, why))
        if not case.infers:  # it has no dropout, and no step
            found.setdefault((*named, BEHAVIOUR.name), (usual.on(workload=BEHAVIOUR.name, graph_digest=""), None))
    return list(found.values())


@cache
def _graph(workload: Workload) -> Graph:
    """Return a workload's graph, built once: a ResNet takes milliseconds, and hundreds of cases ask."""
    return workload.graph()


def _check_knobs(asked: dict[str, Any], chosen: list[Adapter]) -> None:
    """Raise RequestError for a knob that no chosen adapter has, or a value that none allows.

    `refusal` reports a value that only some allow, case by case.
    """
    having = sorted({name for adapter in chosen for name in adapter.capabilities.knobs})
    for name, value in asked.items():
        if name not in having:
            raise RequestError(f"--knob {name}: no chosen adapter has it; {known(name, having)}")
        declared = [adapter.capabilities.knobs for adapter in chosen]
        problems = [knobs[name].problem(value) for knobs in declared if name in knobs]
        if all(problems):
            raise RequestError(f"the knob {name} {problems[0]}")


def _case(adapter: Adapter, workload: Workload, strategy: Strategy, tuning: str, launcher: str, wanted: Wanted) -> Case:
    ranks = wanted.devices if strategy.distributed and strategy.synchronous else 1
    driven = wanted.devices if strategy.several_devices and strategy.synchronous and ranks == 1 else 1
    placement = Placement(1, ranks, wanted.device, driven, wanted.threads, launcher)
    case = Case(
        adapter=adapter.name,
        strategy=strategy.name,
        workload=workload.name,
        placement=placement,
        batch=workload.proof_batch,
        tuning=tuning,
        **optimiser_settings(wanted.optimiser, workload, workload.proof_batch),
        clip_norm=wanted.clip_norm,
        schedule=Schedule(warmup_epochs=1.0) if wanted.changing_rate else Schedule(),
        knobs=knobs.values(adapter.capabilities.knobs, wanted.knobs),
        passes=USUAL_LOADS if strategy.infers else USUAL,
        graph_digest=_graph(workload).digest,
    )
    # The proof's own batch, which divides into microbatches: another one might be refused.
    whole = workload.proof_batch + -workload.proof_batch % ask(adapter, "microbatches", case)
    return case.on(batch=whole, lr=rate_of_proof(case, workload))
