"""What the controller is told, without TensorFlow."""

import sys
from pathlib import Path

import pytest

from adapters.tensorflow import plugin
from suite.contracts import knobs
from suite.contracts.case import Case, Placement
from tests.support.refusals import refusal

PYTHON = Path(sys.executable)
SERVER = "adapters/tensorflow/server.py"
ADAPTER = plugin.TensorFlow()


def whole(asked):
    return knobs.values(plugin.KNOBS, asked)


RANKS = Case("tensorflow", "multiworker_mirrored", "mnist_small", Placement(ranks_per_node=2), knobs=whole({}))
ALONE = Case("tensorflow", "single", "mnist_small", knobs=whole({}))


@pytest.mark.parametrize(
    ("strategy", "asked", "words"),
    [
        ("single", {"xla": "everything"}, "is one of 'auto', 'off', 'update', 'step'"),
        ("single", {"xla": "step"}, None),
        ("single", {"layout": "CHWN"}, "is one of 'auto', 'NHWC', 'NCHW'"),
        ("single", {"pack_mb": 4}, "belongs to the strategy 'multiworker_mirrored' and changes nothing"),
        ("single", {"pack_mb": "auto", "servers": 1, "microbatches": 1}, None),
        ("multiworker_mirrored", {"pack_mb": 32}, None),
        ("multiworker_mirrored", {"pack_mb": "32"}, "is one of 'auto', int, not '32'"),
        ("multiworker_mirrored", {"pack_mb": True}, "is one of 'auto', int, not True"),
        ("multiworker_mirrored", {"pack_mb": 0}, "pack_mb is 0, and the least is 1"),
        ("multiworker_mirrored", {"cross_device": "hierarchical"}, "belongs to the strategy 'mirrored'"),
        ("multiworker_mirrored", {"microbatches": 2}, "belongs to the strategy 'model_parallel'"),
        ("multiworker_mirrored", {"servers": 2}, "'parameter_server' and the strategy 'coordinator'"),
        ("mirrored", {"collective": "ring"}, "belongs to the strategy 'multiworker_mirrored'"),
        ("model_parallel", {"microbatches": 0}, "microbatches is 0, and the least is 1"),
        ("parameter_server", {"servers": 0}, "servers is 0, and the least is 1"),
        ("coordinator", {"servers": 0}, "servers is 0, and the least is 1"),
    ],
)
def test_knobs_say_whose_they_are_and_their_bounds(strategy, asked, words):
    found = knobs.refusal("tensorflow", ADAPTER.capabilities.knobs, strategy, asked)
    assert found is None if words is None else words in found


def test_strategies_say_where_they_spread():
    found = {each.name: (each.distributed, each.several_devices) for each in ADAPTER.capabilities.strategies}
    assert found == {
        "single": (False, False),
        "mirrored": (False, True),
        "keras_fit": (False, True),
        "multiworker_mirrored": (True, False),
        "parameter_server": (True, False),
        "coordinator": (False, True),
        "model_parallel": (False, True),
    }


def test_it_trains_with_adam_and_packs_photographs_whole():
    able = ADAPTER.capabilities
    assert able.optimisers == ("sgd", "adam")
    assert [(form.name, form.kinds, form.ordered, form.whole) for form in able.formats] == [
        ("tfrecord", ("folder",), False, True)
    ]


@pytest.mark.parametrize(
    ("strategy", "asked", "devices", "device", "words"),
    [
        ("mirrored", {"cross_device": "nccl"}, 2, "cpu", "cross_device = 'nccl' needs device = 'cuda'"),
        ("mirrored", {"cross_device": "nccl"}, 2, "cuda", None),
        ("mirrored", {"cross_device": "hierarchical"}, 3, "cpu", "forget the last of 3"),
        ("mirrored", {"cross_device": "hierarchical"}, 4, "cpu", None),
        ("mirrored", {"cross_device": "reduction_to_one"}, 3, "cuda", None),
        ("multiworker_mirrored", {"collective": "ring"}, 1, "cuda", None),
        ("multiworker_mirrored", {"collective": "nccl"}, 1, "cpu", "collective = 'nccl' needs device = 'cuda'"),
    ],
)
def test_an_exchange_is_refused_where_there_is_none(strategy, asked, devices, device, words):
    case = Case("tensorflow", strategy, "mnist_small", Placement(devices=devices, device=device), knobs=whole(asked))
    found = refusal(ADAPTER, case)
    assert found is None if words is None else words in found


def test_a_network_in_stages_is_one_on_all_devices():
    case = Case("tensorflow", "model_parallel", "mnist_small", Placement(devices=4), knobs=whole({}))
    assert ADAPTER.model_parallel_size(case) == 4
    assert ADAPTER.synchronous(case)
    assert (ADAPTER.microbatches(case), ADAPTER.microbatches(case.on(knobs=whole({"microbatches": 3})))) == (1, 3)
    assert "for one device" in ADAPTER.strategy(case).refuses["xla", "step"]
    assert (ADAPTER.model_parallel_size(RANKS), ADAPTER.model_parallel_size(case.on(strategy="mirrored"))) == (1, 1)


def test_parameter_servers_run_beside_the_workers():
    case = RANKS.on(strategy="parameter_server", knobs=whole({"servers": 2}))
    counts = ("0", "2", "2", str(case.placement.threads))
    assert ADAPTER.sidecars(case) == tuple((SERVER, "ps", number, *counts) for number in ("0", "1"))
    assert (Path(plugin.__file__).parents[2] / SERVER).is_file()
    assert ADAPTER.sidecars(RANKS) == ()
    assert not ADAPTER.synchronous(case)
    assert ADAPTER.unsupported(case) is None
    assert set(ADAPTER.strategy(case).refuses) == {("xla", "update"), ("xla", "step")}


def test_workers_and_parameter_servers_run_beside_the_coordinator():
    placement = Placement(devices=3, threads=2)
    case = Case("tensorflow", "coordinator", "mnist_small", placement, knobs=whole({"servers": 2}))
    counts = ("1", "3", "2", "2")
    assert ADAPTER.sidecars(case) == (
        *((SERVER, "worker", number, *counts) for number in ("0", "1", "2")),
        *((SERVER, "ps", number, *counts) for number in ("0", "1")),
    )
    assert not ADAPTER.synchronous(case)
    assert ADAPTER.unsupported(case) is None
    assert set(ADAPTER.strategy(case).refuses) == {("xla", "update"), ("xla", "step"), ("device", "cuda")}


def test_a_layout_without_kernels_is_refused():
    nchw = ALONE.on(knobs=whole({"layout": "NCHW"}))
    assert "NCHW on a CPU needs xla = 'step'" in ADAPTER.unsupported(nchw)
    assert ADAPTER.unsupported(nchw.on(knobs=whole({"layout": "NCHW", "xla": "step"}))) is None
    assert ADAPTER.unsupported(nchw.on(placement=Placement(device="cuda"))) is None


def test_only_tuned_cpu_processes_get_allocator_settings():
    assert "MALLOC_TRIM_THRESHOLD_" not in ADAPTER.environ(ALONE, PYTHON)
    on_gpu = ALONE.on(tuning="tuned", placement=Placement(device="cuda"))
    assert "MALLOC_TRIM_THRESHOLD_" not in ADAPTER.environ(on_gpu, PYTHON)
    assert ADAPTER.environ(ALONE.on(tuning="tuned"), PYTHON)["MALLOC_TRIM_THRESHOLD_"] == str(32 << 30)


@pytest.mark.parametrize(
    ("device", "asked", "wanted"),
    [
        ("cpu", {}, {"TF_ENABLE_ONEDNN_OPTS": "1"}),
        ("cpu", {"onednn": "off"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}),
        ("cuda", {"cudnn_autotune": "off"}, {"TF_CUDNN_USE_AUTOTUNE": "0"}),
    ],
)
def test_the_vendors_kernels_are_variables(device, asked, wanted):
    case = ALONE.on(placement=Placement(device=device), knobs=whole(asked))
    assert wanted.items() <= ADAPTER.environ(case, PYTHON).items()
    assert ("TF_CUDNN_USE_AUTOTUNE" in ADAPTER.environ(case, PYTHON)) == ("cudnn_autotune" in asked)
