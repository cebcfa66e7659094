"""From configurations and cases to the typed parts of a job (`suite.worker.job`)."""

from suite.contracts import knobs
from suite.contracts.adapter import Adapter
from suite.contracts.case import Case, Configuration, Schedule
from suite.plugin_errors import ask
from suite.worker import schedule
from suite.worker.contract import SGD, Adam, Optimiser
from suite.worker.job import DataSet, Group, Input, Measure, Sampling, Task, Train
from suite.worker.pass_kinds import TRAIN
from suite.worker.variables import Variables
from workloads.catalogue import Workload


def group(configuration: Configuration, adapter: Adapter, tuned_batch: int = 0) -> Group:
    placement = configuration.placement
    return Group(
        ranks=placement.ranks,
        ranks_per_node=placement.ranks_per_node,
        binding=placement.binding,
        trainer=adapter.strategy(configuration).trainer,
        strategy=configuration.strategy,
        device=placement.device,
        devices=placement.devices,
        threads=placement.threads,
        batch=configuration.batch,
        precision=configuration.precision,
        tuning=configuration.tuning,
        knobs={**knobs.values(adapter.capabilities.knobs), **configuration.knobs},
        optimiser=optimiser(configuration),
        seed=configuration.seed,
        # What lies in memory is not sent to processes: the trainer takes it itself.
        readers=0 if configuration.input.mode == "memory" else configuration.readers,
        prefetch=configuration.input.prefetch,
        changing_rate=configuration.schedule != Schedule(),
        model_parallel_size=max(1, ask(adapter, "model_parallel_size", configuration) // placement.devices),
        share_devices=placement.share_devices,
        memory_limit=placement.memory_limit,
        variables=variables(adapter),
        tuned_batch=tuned_batch,
        straggler=configuration.straggler,
    )


def variables(adapter: Adapter) -> Variables:
    """Return the framework's variables that an adapter declares."""
    declared = (adapter.arithmetic_variables, adapter.exchange_variables, adapter.other_variables)
    return Variables(*map(list, declared))


def optimiser(of: Configuration) -> Optimiser:
    if of.optimiser == "adam":
        return Adam(of.lr, of.beta1, of.beta2, of.epsilon, of.weight_decay)
    return SGD(of.lr, of.momentum, of.weight_decay)


def reading(configuration: Configuration) -> Input:
    how = configuration.input
    return Input(how.mode, how.page_cache, how.repeat, how.augment, how.on_error)


def measuring(case: Case, repeat: int, workload: Workload, data: DataSet | None) -> Task:
    """Return Measure, or Train for a case with the pass `train`; `repeat` numbers the case's processes."""
    graph, how = workload.graph(), reading(case)
    if case.passes == (TRAIN,):
        rate = schedule.Schedule(case.schedule.warmup_epochs, case.schedule.decay)
        rule = case.training
        return Train(graph, rule.epochs, rule.held_out, rate, how, data, rule.patience)
    asked = case.sampling
    sampling = Sampling(asked.warmup_steps, asked.warmup_limit, asked.steps, asked.seconds)
    return Measure(graph, list(case.passes_of(repeat)), sampling, how, data, peaks=repeat == 0)
