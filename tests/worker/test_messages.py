"""Every message over the wire and back, and what is refused."""

import json
import math
import time

import pytest

from stagebench.suite.worker import messages
from stagebench.suite.worker.contract import KernelTimes, LayerTimes
from tests.support.errors import raising

NAN = float("nan")
EVERY = [
    messages.Hello(2, 0, 1, "here", 7, "3.6.15", "1.19.5", [0, 1], {"OMP_NUM_THREADS": "1"}, {}, "boot", 2),
    messages.Joined(0, 1, "gloo", {"torch": "2"}, 1, {}),
    messages.Built(0.5),
    messages.Phase("build"),
    messages.Progress("native", "measure", 3, 50),
    messages.Waiting(True),
    messages.Failed("oom", "MemoryError: no room", "Traceback ...", 1.5),
    messages.Done(),
    messages.Pass("io_only", 16, True, [0.5], [0.25, 0.25], 0.5),
    messages.Pass("staged", 16, False, [0.5], [0.25], 0.25, stage_s={"io": [0.25]}, loss=0.5),
    messages.Pass("compute_only", 16, True, [0.5], [0.25], 0.25, pairs_s=[(0.3, 0.25), (0.31, 0.26)]),
    messages.ServerUse(
        "mosec", "0.9.8", [messages.InFlight(1, 200.0, 0.005)], 1.5, 0.002, False, 0.001, 0.0004, 4, 200, 0.5
    ),
    messages.Try(
        100.0, 3, [0.01, 0.02], [1, 1], [0.01, 0.02], {"lag": 0, "server": 0.005, "hop": 0.01}, 0.03, failed=1
    ),
    messages.Noise([0.003], [0.004], messages.HostUse(1.5, 2.5, 0.5, 2, clock_hz=2.5e9)),
    messages.Noise([], [], messages.HostUse(1.5, 2.5, 0.5, 2, gpus=[messages.GpuUse("GPU-1", throttled_by=[])])),
    messages.Memory(1 << 30),
    messages.Peaks(1e11, 2e10, "NumPy 2.1"),
    messages.Layers([LayerTimes("conv1", "conv", 0.1, 0.2, 0.0, 400)]),
    messages.Kernels({"forward": 0.25}, [KernelTimes("forward", "conv", "kernel", 2.0, 0.25)], "theirs 1", "k.json.gz"),
    messages.Training([messages.Epoch(1.0, 0.5, 64, 8, 0.75, 0.25)], [0], [0.5], [0.125]),
    messages.Proof(
        messages.ProofLosses([1.0], [1.0], [1.0]), {"gradient": {"fc.weight": 1e-7}}, "graph", "weights", 10, 20
    ),
    messages.Behaviour(["predict: zeros"]),
    messages.ExchangeTimes("single", "all-reduce", 400, 1, [0.5], [0.25]),
    messages.OverlapTimes("all-reduce", 400, [0.1], [0.1], [0.1], [0.1], 3),
    messages.SkippedSizes([400, 800]),
    messages.Wire({"eth0": messages.Traffic(1, 2)}),
    messages.Notes({"reader": "threads", "staleness": {"mean": 0.5}}),
]


@pytest.mark.parametrize("message", EVERY, ids=messages.name_of)
def test_a_message_comes_back_as_it_was_sent(message):
    line = messages.encode(message)
    assert "\n" not in line
    assert messages.decode(line) == message
    assert messages.decode(line.encode()) == message


def test_there_is_one_of_every_type_and_the_sender_is_told_which_field_is_wrong():
    assert {type(message) for message in EVERY} == set(messages.CODEC.types.values())
    with raising(ValueError, "joined.versions['torch']", "null"):
        messages.encode(messages.Joined(0, 1, "gloo", {"torch": None}, 1, {}))
    with pytest.raises(TypeError, match="JSON"):
        messages.encode(messages.Notes({"shape": {1, 2}}))


def test_a_line_tells_when_it_was_written():
    before = time.time()
    written = json.loads(messages.encode(messages.Done()))
    assert before <= written.pop("time_s") <= time.time()
    assert written == {"type": "done"}
    assert json.loads(messages.encode(messages.Failed("crash", "", "", 1.5)))["time_s"] == 1.5


def test_a_loss_that_is_no_number_is_not_a_missing_one():
    native = messages.Pass("native", 16, True, [], [0.25], 0.25, [0.0], loss=NAN)
    assert math.isnan(messages.decode(messages.encode(native)).loss)
    assert messages.decode(messages.encode(native._replace(loss=None))).loss is None
    assert "NaN" not in messages.encode(native)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("not json", "Expecting value"),
        (b"\xff", "utf-8"),
        ("[1]", "no message of a known type"),
        ("{}", "no message of a known type"),
        ('{"type": ["done"]}', "no message of a known type"),
        ('{"type": "gossip"}', r"no message of a known type: .*gossip"),
        ('{"type": "done", "well": true}', "done: unknown field 'well'"),
        ('{"type": "phase"}', "phase: the field 'name' is missing"),
        ('{"type": "progress", "name": "native", "phase": "m", "step": "3", "of": 5}', r"progress\.step: a whole"),
    ],
)
def test_what_is_no_message_is_refused(line, error):
    with pytest.raises(ValueError, match=error):
        messages.decode(line)
