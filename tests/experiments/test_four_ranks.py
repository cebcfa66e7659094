"""Every strategy of every adapter on four ranks or devices, with its proof; by knobs and with a schedule, too."""

import json

import pytest

from stagebench.suite.plugins import adapters

FOUR = 4
HEAD = """
name = "four"

[defaults]
workload = "mnist_small"
data = "synthetic"
batch = 8
passes = ["native"]
tuning = "tuned"

[sampling]
quick = true
steps = 12
seconds = 0.0
processes = 1
warmup_steps = 2

[training]
epochs = 2
"""
# What a strategy's knobs make another way of; small as it is, mnist_small has three layers to cut between.
WAYS = [
    ("pytorch", "ddp", {"compression": "fp16"}),
    ("pytorch", "ddp", {"compression": "powersgd"}),
    ("pytorch", "fsdp", {"checkpoint_segments": 2}),
    ("pytorch", "pipeline", {"schedule": "1f1b"}),
    ("pytorch", "pipeline", {"schedule": "interleaved"}),
    ("pytorch", "hybrid", {"schedule": "1f1b"}),
    ("pytorch", "parameter_server", {"mode": "async"}),
    ("pytorch", "parameter_server", {"mode": "async", "staleness": 1}),
    ("pytorch", "parameter_server", {"backups": 1, "server_ranks": 1}),
    ("tensorflow", "mirrored", {"cross_device": "hierarchical"}),
    ("tensorflow", "mirrored", {"cross_device": "reduction_to_one"}),
    ("tensorflow", "model_parallel", {"microbatches": 4}),
    ("mxnet", "dist_sync", {"compression": "2bit"}),
    ("caffempi", "two_level", {"node_ranks": 2}),
    ("caffempi", "data_parallel", {"overlap": "layerwise"}),
    ("horovod-mxnet", "allreduce", {"controller": "mpi"}),  # which wants a launcher of MPI's
]
LARGER = {
    ("pytorch", "pipeline"): 'workload = "alexnet"\n',
    ("tensorflow", "model_parallel"): 'workload = "alexnet"\n',
    ("pytorch", "branch_parallel"): 'workload = "googlenet"\nbatch = 2\n',
}
# A rate that rises and falls, in the pass that has one.
SCHEDULED = 'passes = ["train"]\ndata = "real"\nwarmup_epochs = 1\ndecay = "cosine"\n'
SCHEDULES = [
    ("pytorch", "ddp", "ranks"),
    ("tensorflow", "multiworker_mirrored", "ranks"),
    ("mxnet", "dist_sync", "ranks"),
    ("cntk", "data_parallel", "ranks"),
    ("jax", "pmap", "devices"),
    ("caffempi", "data_parallel", "ranks"),
    ("horovod-mxnet", "allreduce", "ranks"),
]
NOWHERE = {("pytorch", "dp")}  # GPUs only
TIED = {("pytorch", "branch_parallel"), ("tensorflow", "model_parallel")}  # gpt_char has no branches, and a tied head
MOMENTS = {("cntk", "block_momentum")}  # Adam's would outlive a block
BY_NAME = {"horovod-pytorch", "horovod-tensorflow"}  # compiled where asked for


def ways():
    """(adapter, strategy, how many of what, knobs)."""
    for name, adapter in adapters().items():
        for strategy in adapter.capabilities.strategies:
            if (strategy.distributed or strategy.several_devices) and not strategy.infers:
                over = "ranks" if strategy.distributed else "devices"
                yield name, strategy.name, over, {}
                for own, which, knobs in WAYS:
                    if (own, which) == (name, strategy.name):
                        yield name, which, over, knobs


def block(name, strategy, over, knobs, more="", count=FOUR, network=None):
    launcher = 'launcher = "mpiexec"\n' if knobs.get("controller") == "mpi" else ""
    told = ", ".join(f"{knob} = {json.dumps(value)}" for knob, value in knobs.items())
    network = LARGER.get((name, strategy), "") if network is None else network
    return (
        f'[[cases]]\nadapter = "{name}"\nstrategy = "{strategy}"\n{over} = {count}\n'
        f"{network}{launcher}knobs = {{ {told} }}\n{more}"
    )


def test_every_strategy_on_four(experiment, tmp_path):
    plan, asked = tmp_path / "four.toml", list(ways())
    assert {(name, strategy) for name, strategy, _ in WAYS} <= {way[:2] for way in asked}
    scheduled = [block(*each, {}, SCHEDULED) for each in SCHEDULES]
    plan.write_text(HEAD + "\n".join([block(*way) for way in asked] + scheduled))
    done = experiment(str(plan))
    refused = {(row.case.adapter, row.case.strategy) for row in done.folder.cases if row.outcome}
    assert {pair for pair in refused if pair[0] not in BY_NAME} == NOWHERE
    assert len(all_proven(done.folder)) >= len(asked) + len(scheduled) - len(NOWHERE) - len(BY_NAME)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_a_transformer_by_every_strategy_on_four(experiment, tmp_path, optimiser):
    """Its gradients are clipped where the strategy does that."""
    plan, asked = tmp_path / "gpt.toml", [way for way in ways() if not way[3] or "interleaved" in way[3].values()]
    head = HEAD.replace("mnist_small", "gpt_char")
    blocks = []
    for name, strategy, over, knobs in asked:
        clips = adapters()[name].capabilities.strategy(strategy).clips
        more = f'optimiser = "{optimiser}"\nclip_norm = {float(clips)}\n'
        blocks.append(block(name, strategy, over, knobs, more, network=""))
    plan.write_text(head + "\n".join(blocks))
    done = experiment(str(plan))
    refused = {(row.case.adapter, row.case.strategy) for row in done.folder.cases if row.outcome}
    none = NOWHERE | TIED | (MOMENTS if optimiser == "adamw" else set())
    assert {pair for pair in refused if pair[0] not in BY_NAME} == none
    assert len(all_proven(done.folder)) >= len(asked) - len(none) - len(BY_NAME)


def all_proven(folder):
    """The records of a run, each with a proof that passed."""
    measured = [(row, folder.record(row.id, 0)) for row in folder.cases if not row.outcome]
    proofs = folder.proofs()
    for row, record in measured:
        assert record.outcome == "ok", record.reason
        assert record.proof in proofs, (row.case, record.proof_reason)
        assert proofs[record.proof].passed, (row.case, record.proof_reason)
    return measured
