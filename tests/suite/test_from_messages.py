"""What ranks report becomes their part of a record, field by field."""

import json
import math
from typing import Any, get_args, get_type_hints

from stagebench.suite.results.rank_report import rank_of
from stagebench.suite.worker import messages
from stagebench.suite.worker.contract import KernelTimes, LayerTimes

MACHINE = messages.Machine(cpu="A", gpu_settings=[messages.GpuSettings(1.98e9, 700.0, True)])
GPU = messages.GpuUse("GPU-1", 0.5, 1024, celsius=60, throttled_by=["power cap"], joules=2.0)
LIFE = [
    messages.Hello(1, 3, 4, "node", 17, "3.11.7", "2.0", [0, 1], {"OMP_NUM_THREADS": "1"}, {}, machine=MACHINE),
    messages.Joined(3, 4, "gloo", {"torch": "2"}, 1, {"GLOO_X": "y"}),
]
TIMED = {"samples": 4, "steady": True, "warmup_s": [0.5], "step_s": [0.25], "wall_s": 0.5}


def test_a_training_s_rank_even_with_an_epoch_whose_loss_is_not_finite():
    found = rank_of(
        3,
        [
            *LIFE,
            messages.Built(0.75),
            messages.Notes({"reader": "one", "staged": "not measured"}),
            messages.Pass("native", io_s=[0.1], loss=math.nan, **TIMED),
            messages.Pass("comm_only", **TIMED),
            messages.Pass("resident", pairs_s=[(0.5, 0.25)], **TIMED),
            messages.Noise([0.1], [0.2], messages.HostUse(1.0, 2.0, 0.25, 2, own_cpu_s=1.5, gpus=[GPU])),
            messages.Memory(4096, 1024),
            messages.Peaks(1e9, 2e9, "numpy"),
            messages.Layers([LayerTimes("conv1", "conv", 0.1, 0.2, 0.0, 8)]),
            messages.Kernels(
                {"update": 0.5}, [KernelTimes("update", "sgd", "kernel", 2.0, 0.5)], "theirs", "k.json.gz"
            ),
            messages.Training([messages.Epoch(1.0, 0.1, 8, 2, 0.5, 2.0)], [0, 1], [2.5, math.nan], [0.5, 1.0], 0.25),
            messages.Notes({"reader": "two"}),
            messages.Wire({"eth0": messages.Traffic(1, 2)}),
        ],
    )
    assert found.hello.machine.cpu == "A"
    (settings,) = found.hello.machine.gpu_settings
    assert (settings.power_limit_watts, settings.ecc) == (700, None)
    (gpu,) = found.noise.native.gpus
    assert (gpu.uuid, gpu.busy_share, gpu.celsius, gpu.throttled_by) == ("GPU-1", 0.5, 60, ["power cap"])
    assert found.built.seconds == 0.75
    assert found.joined.settings == {"GLOO_X": "y"}
    assert found.passes["native"].loss is None
    assert (found.passes["native"].io_s, found.passes["comm_only"].io_s) == ([0.1], None)
    assert found.passes["resident"].pairs_s == [(0.5, 0.25)]
    assert (found.noise.native.own_cpu_s, found.noise.reference_after_s) == (1.5, [0.2])
    assert (found.memory.host_bytes, found.memory.device_bytes) == (4096, 1024)
    assert (found.peaks.flop_per_s, found.peaks.library) == (1e9, "numpy")
    assert found.layers[0].backward_s == 0.2
    assert (found.kernels.stages, found.kernels.rows[0].calls) == ({"update": 0.5}, 2.0)
    assert found.kernels.trace == "k.json.gz"
    assert (found.training.losses, found.training.open_s) == ([2.5, None], 0.25)
    assert found.notes == {"reader": "two", "staged": "not measured"}
    assert found.wire["eth0"].sent_bytes == 2
    assert found.failed is None
    assert type(found).model_validate_json(found.model_dump_json()) == found
    diverged = messages.Epoch(1.0, 0.1, 8, 2, 0.5, math.nan)
    found = rank_of(3, [*LIFE, messages.Training([diverged], [0], [math.nan], [0.5])])
    written = json.dumps(without_nones(json.loads(found.model_dump_json())))
    assert type(found).model_validate_json(written).training.epochs == [diverged._replace(loss=None)]


def without_nones(value: Any) -> Any:
    """A record's file omits what is None."""
    if isinstance(value, dict):
        return {name: without_nones(each) for name, each in value.items() if each is not None}
    return [without_nones(each) for each in value] if isinstance(value, list) else value


def test_a_message_s_value_that_may_be_missing_has_a_default():
    """Files omit None: without a default, a record that holds one could not be read again."""
    for kind in (each for each in vars(messages).values() if hasattr(each, "_field_defaults")):
        optional = {name for name, hint in get_type_hints(kind).items() if type(None) in get_args(hint)}
        assert optional <= set(kind._field_defaults), kind


def test_a_rank_of_communication_keeps_its_rows_and_one_that_failed_its_failure():
    times = messages.ExchangeTimes("single", "all-reduce", 8, 1, [1e-3], [])
    overlap = messages.OverlapTimes("all-reduce", 8, [1.0], [2.0], [3.0], [2.5], 4)
    found = rank_of(3, [*LIFE, times, overlap, messages.SkippedSizes([16])])
    assert found.exchanges == (times, overlap, messages.SkippedSizes([16]))
    assert type(found).model_validate_json(found.model_dump_json()) == found
    found = rank_of(0, [messages.Failed("crash", "ValueError: no", "Traceback", 1.0)])
    assert (found.hello, found.failed.message) == (None, "ValueError: no")
