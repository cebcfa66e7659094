"""What the controller is told, without PyTorch."""

import sys
from pathlib import Path

import pluggy
import pytest

from adapters.pytorch import plugin
from suite.contracts.case import Case, Placement
from suite.contracts.hooks import PROJECT, Hooks

PYTHON = Path(sys.executable)

ADAPTER = plugin.PyTorch()
DDP = Case("pytorch", "ddp", "mnist_small", Placement(ranks_per_node=2))


def test_it_registers_through_the_hook():
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(Hooks)
    plugins.register(plugin)
    plugins.check_pending()
    [[adapter]] = plugins.hook.stagebench_adapters()
    assert (adapter.name, adapter.environment, adapter.requires) == ("pytorch", "pytorch", ("torch",))


@pytest.mark.parametrize(
    ("knob", "value", "problem"),
    [
        ("bucket_cap_mb", True, "is one of 'auto', int, not True"),
        ("bucket_cap_mb", 4, None),
        ("bucket_cap_mb", "auto", None),
        ("bucket_cap_mb", "25", "is one of 'auto', int, not '25'"),
        ("memory_format", "nhwc", "is one of 'auto', 'contiguous', 'channels_last'"),
        ("compile", "yes", "wants bool"),
        ("gradient_as_bucket_view", "auto", None),
    ],
)
def test_knobs_are_checked(knob, value, problem):
    found = ADAPTER.capabilities.knobs[knob].problem(value)
    assert (found is None) if problem is None else (problem in found)


def test_every_default_is_allowed():
    for knob in ADAPTER.capabilities.knobs.values():
        assert knob.problem(knob.default) is None


def test_ddp_on_one_rank_is_allowed():
    assert ADAPTER.unsupported(DDP.on(placement=Placement())) is None


def test_a_knob_that_would_change_nothing_is_refused():
    alone = DDP.on(strategy="single", placement=Placement(), knobs={"static_graph": True})
    assert "belongs to the strategy 'ddp'" in ADAPTER.unsupported(alone)
    assert ADAPTER.unsupported(alone.on(knobs={"static_graph": False, "bucket_cap_mb": "auto"})) is None
    assert "belongs to the strategy 'ddp' and" in ADAPTER.unsupported(alone.on(knobs={"bucket_cap_mb": 25}))


def test_an_empty_bucket_is_refused():
    assert "bucket_cap_mb is 0, and the least is 1" in ADAPTER.unsupported(DDP.on(knobs={"bucket_cap_mb": 0}))


def test_rounded_gradients_are_not_exact():
    assert ADAPTER.exact(DDP)
    assert not ADAPTER.exact(DDP.on(knobs={"compression": "fp16"}))
    assert "over NCCL alone" in ADAPTER.unsupported(DDP.on(knobs={"compression": "bf16"}))
    layout = DDP.on(knobs={"compression": "powersgd", "memory_format": "channels_last"})
    assert "leave memory_format to auto" in ADAPTER.unsupported(layout)


def test_a_batch_is_taken_in_equal_pieces():
    case = DDP.on(strategy="accumulate", batch=8)
    assert ADAPTER.microbatches(case) == 4
    assert ADAPTER.microbatches(DDP) == 1
    assert ADAPTER.unsupported(case) is None
    assert "does not divide into microbatches = 3" in ADAPTER.unsupported(case.on(knobs={"microbatches": 3}))
    assert "microbatches is 0, and the least is 1" in ADAPTER.unsupported(case.on(knobs={"microbatches": 0}))


def test_a_pipeline_holds_one_network():
    ranks = Placement(ranks_per_node=4)
    pipeline = DDP.on(strategy="pipeline", placement=ranks, batch=4)
    assert (ADAPTER.parts(pipeline), ADAPTER.microbatches(pipeline)) == (4, 4)
    assert ADAPTER.unsupported(pipeline) is None
    assert "nobody to hand on to" in ADAPTER.unsupported(pipeline.on(placement=Placement()))
    few = pipeline.on(knobs={"schedule": "1f1b", "microbatches": 2})
    assert "1f1b wants as many pieces as there are parts, 4" in ADAPTER.unsupported(few)
    hybrid = pipeline.on(strategy="hybrid")
    assert ADAPTER.parts(hybrid) == 2
    assert "stages is 1, and the least is 2" in ADAPTER.unsupported(hybrid.on(knobs={"stages": 1}))
    assert ADAPTER.parts(DDP) == 1


def test_servers_that_wait_for_nobody_are_not_exact():
    served = DDP.on(strategy="parameter_server")
    assert ADAPTER.exact(served)
    assert not ADAPTER.exact(served.on(knobs={"mode": "async"}))
    assert not ADAPTER.exact(DDP.on(strategy="local_sgd"))
    assert "period is 1" in ADAPTER.unsupported(DDP.on(strategy="local_sgd", knobs={"period": 1}))


def test_only_tuned_cpu_processes_get_allocator_settings():
    assert ADAPTER.environ(DDP, PYTHON) == {}
    assert ADAPTER.environ(DDP.on(tuning="tuned", placement=Placement(device="cuda")), PYTHON) == {}
    assert ADAPTER.environ(DDP.on(tuning="tuned"), PYTHON)["MALLOC_TRIM_THRESHOLD_"] == str(32 << 30)
