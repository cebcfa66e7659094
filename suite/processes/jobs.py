"""From configurations and cases to the typed parts of a job (`stagebench.suite.worker.job`)."""

from collections.abc import Sequence

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Case, Collective, Configuration
from stagebench.suite.plugin_errors import ask
from stagebench.suite.worker.contract import SGD, Adam, Optimiser, Setup
from stagebench.suite.worker.job import Communicate, DataSet, Group, Measure, ModelServer, Task, Train
from stagebench.suite.worker.pass_kinds import TRAIN
from stagebench.suite.worker.variables import Variables
from stagebench.workloads.catalogue import Workload


def group(configuration: Configuration, adapter: Adapter, tuned_batch: int = 0, decays: str = "all") -> Group:
    """Return the ranks of a configuration; `tuned_batch` are samples per device, as of `Launch`; `decays` a graph's."""
    placement = configuration.placement
    model_parallel_size = max(1, ask(adapter, "model_parallel_size", configuration) // placement.devices)
    devices = placement.devices * model_parallel_size  # of one network, or of several that one rank trains
    setup = Setup(
        rank=0,
        world=placement.ranks,
        local_rank=0,
        strategy=configuration.strategy,
        device=placement.device,
        threads=placement.threads,
        batch=configuration.batch * devices,
        precision=configuration.precision,
        tuning=configuration.tuning,
        knobs={**knobs.values(adapter.capabilities.knobs), **configuration.knobs},
        optimiser=optimiser(configuration)._replace(decays=decays),
        seed=configuration.seed,
        # What lies in memory is not sent to processes: the trainer takes it itself.
        readers=0 if configuration.input.mode == "memory" else configuration.readers,
        prefetch=configuration.input.prefetch,
        devices=placement.devices,
        model_parallel_size=model_parallel_size,
        changing_rate=configuration.schedule.changing,
        share_devices=placement.share_devices,
        tuned_batch=tuned_batch * devices,
    )
    return Group(
        trainer=adapter.strategy(configuration).trainer,
        setup=setup,
        ranks_per_node=placement.ranks_per_node,
        binding=placement.binding,
        memory_limit=placement.memory_limit,
        variables=variables(adapter),
        straggler=configuration.straggler,
    )


def variables(adapter: Adapter) -> Variables:
    """Return the framework's variables that an adapter declares."""
    declared = (adapter.arithmetic_variables, adapter.exchange_variables, adapter.other_variables)
    return Variables(*map(list, declared))


def optimiser(of: Configuration) -> Optimiser:
    if of.optimiser != "sgd":
        decoupled = of.optimiser == "adamw"
        return Adam(of.lr, of.beta1, of.beta2, of.epsilon, of.weight_decay, decoupled, clip=of.clip_norm)
    return SGD(of.lr, of.momentum, of.weight_decay, clip=of.clip_norm)


def measuring(
    case: Case,
    repeat: int,
    workload: Workload,
    data: DataSet | None,
    server: ModelServer | None = None,
    trace: Sequence[float] = (),
) -> Task:
    """Return Measure, or Train for a case with the pass `train`; `repeat` numbers the case's processes."""
    if case.passes == (TRAIN,):
        return Train(workload.graph(), case.training, case.schedule, case.input, data)
    passes = list(case.passes_of(repeat))
    served = (case.serving, server, list(trace))
    return Measure(workload.graph(), passes, case.sampling, case.input, data, repeat == 0, *served)


def exchanging(collective: Collective, adapter: Adapter) -> Task:
    """Return the task of a case that exchanges messages; the adapter has its backend."""
    return Communicate(
        communicator=next(each.communicator for each in adapter.backends if each.name == collective.backend),
        operation=collective.operation,
        counts=list(collective.counts),
        overlap=list(collective.overlapped),
        seconds=collective.seconds,
        budget_s=collective.budget,
        tensors=bool(collective.tensors),
        dtype=collective.dtype,
    )
