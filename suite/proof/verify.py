"""Which proofs there are to make: every adapter x workload x strategy x tuning, each as a case.

An asynchronous strategy is proven on one device: see `proofs.case_of_proof`.
"""

from collections.abc import Iterator

from suite.adapter import Adapter, Strategy
from suite.case import Case, Placement
from suite.errors import RequestError
from suite.plugins import adapters, workloads
from suite.suggest import known
from workloads.catalogue import Workload

ORACLE = "reference"  # proven against finite differences by its own tests, not against itself


def cases_to_verify(
    only_adapters: list[str], only_workloads: list[str], only_strategies: list[str], tunings: list[str], ranks: int
) -> list[Case]:
    """The cases; RequestError for a name that is unknown or a choice that leaves nothing."""
    wanted = _chosen("adapter", only_adapters, [name for name in adapters() if name != ORACLE])
    networks = _chosen("workload", only_workloads, list(workloads()))
    _chosen("tuning", tunings, sorted({tuning for name in wanted for tuning in adapters()[name].capabilities.tunings}))
    found = [
        case
        for name in wanted
        for workload in networks
        for case in _cases(adapters()[name], workloads()[workload], only_strategies, tunings, ranks)
    ]
    if not found:
        raise RequestError(
            f"no strategy named {', '.join(only_strategies) or 'at all'} in {', '.join(wanted)}; "
            "see `stagebench list strategies`"
        )
    return found


def _chosen(kind: str, asked: list[str], names: list[str]) -> list[str]:
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise RequestError(f"there is no {kind} {unknown[0]!r}; {known(unknown[0], names)}")
    return asked or names


def _cases(adapter: Adapter, workload: Workload, only: list[str], tunings: list[str], ranks: int) -> Iterator[Case]:
    for strategy in adapter.capabilities.strategies:
        if not only or strategy.name in only:
            for tuning in adapter.capabilities.tunings:
                if not tunings or tuning in tunings:
                    yield _case(adapter, workload, strategy, tuning, ranks)


def _case(adapter: Adapter, workload: Workload, strategy: Strategy, tuning: str, devices: int) -> Case:
    optimiser = workload.optimiser
    ranks = devices if strategy.distributed and strategy.synchronous else 1
    return Case(
        adapter=adapter.name,
        strategy=strategy.name,
        workload=workload.name,
        placement=Placement(
            ranks_per_node=ranks,
            devices=devices if strategy.several_devices and strategy.synchronous and ranks == 1 else 1,
            launcher=strategy.launchers[0],
        ),
        batch=workload.proof_batch,
        tuning=tuning,
        lr=workload.proof_lr,
        momentum=optimiser.momentum,
        weight_decay=optimiser.weight_decay,
        knobs={name: knob.default for name, knob in adapter.capabilities.knobs.items()},
        graph_digest=workload.graph().digest,
    )
