"""What GPUs did while something was measured, by a library that plays NVML behind the real ctypes."""

import ctypes
import os
import shutil
import subprocess
import threading
import time

import pytest

from stagebench.suite.worker import gpu_watch, noise
from stagebench.suite.worker.messages import GpuUse

COMPILER = shutil.which("cc")
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "played_nvml.c")
NUMBERS = {"used": ctypes.c_ulonglong, "millijoules": ctypes.c_ulonglong, "reasons": ctypes.c_ulonglong}
WHOLE = GpuUse(
    uuid="GPU-1a",
    busy_share=0.8,
    memory_bytes=5 << 30,
    watts=300.0,
    most_watts=300.0,
    sm_clock_hz=1.98e9,
    least_sm_clock_hz=1.98e9,
    memory_clock_hz=2.619e9,
    least_memory_clock_hz=2.619e9,
    celsius=60,
    throttled_by=[],
    joules=0.0,
)
PART = GpuUse(uuid="GPU-2b", busy_share=0.8, memory_bytes=5 << 30)  # what a virtual machine may be left with


class Played:
    """The library's variables, as attributes."""

    def __init__(self, path):
        object.__setattr__(self, "library", ctypes.CDLL(path))

    def __getattr__(self, name):
        return NUMBERS.get(name, ctypes.c_uint).in_dll(self.library, name).value

    def __setattr__(self, name, value):
        NUMBERS.get(name, ctypes.c_uint).in_dll(self.library, name).value = value


@pytest.fixture(params=gpu_watch.ASK_REASONS)
def played(request, tmp_path, monkeypatch):
    """A driver's library, of today and of before; the only one there is."""
    if COMPILER is None:
        pytest.skip("the library is compiled by cc")
    path = str(tmp_path / "libnvidia-ml.so.1")
    reasons = "-DREASONS=" + request.param
    subprocess.check_call([COMPILER, "-std=c99", "-shared", "-fPIC", reasons, SOURCE, "-o", path])
    monkeypatch.setattr(gpu_watch, "LIBRARY", path)
    return Played(path)


def watched(meanwhile, *uuids):
    watch = gpu_watch.GpuWatch(list(uuids))
    watch.begin()
    meanwhile()
    return watch.end()


def test_means_extremes_and_the_union_of_reasons_are_kept(played, monkeypatch):
    monkeypatch.setattr(gpu_watch, "EVERY_S", 0.001)
    monkeypatch.setattr(gpu_watch, "REST", 0)

    def sampled():
        """Once more, with what stands there now."""
        before, deadline = played.samples, time.time() + 120.0
        while played.samples < before + 2 and time.time() < deadline:
            time.sleep(0.001)

    def meanwhile():
        sampled()
        played.busy, played.milliwatts, played.celsius, played.reasons = 20, 700000, 83, 0x4 | 0x40
        played.sm_mhz, played.used, played.millijoules = 1200, 9 << 30, 251500
        sampled()
        played.busy, played.milliwatts, played.celsius, played.reasons = 80, 300000, 60, 0x1000
        played.sm_mhz, played.used = 1980, 5 << 30

    (found,) = watched(meanwhile, "GPU-1a")
    assert (found.memory_bytes, found.celsius, found.joules) == (9 << 30, 83, 250.0)
    assert (found.most_watts, found.least_sm_clock_hz) == (700.0, 1.2e9)
    assert 0.2 < found.busy_share < 0.8
    assert 300.0 < found.watts < 700.0
    assert 1.2e9 < found.sm_clock_hz < 1.98e9
    assert found.memory_clock_hz == found.least_memory_clock_hz == 2.619e9
    assert found.throttled_by == ["hardware thermal", "power cap", "reason 0x1000"]


def test_samples_leave_the_processor_alone(played, monkeypatch):
    """They come less often where one takes long; a thousandth of a second costs two tenths of rest."""
    asked = []
    clock = iter([0.0, 0.003, 1.0, 1.0])
    monkeypatch.setattr(gpu_watch, "_own_time", lambda: next(clock))

    class Over(object):
        def wait(self, seconds):
            asked.append(seconds)
            return len(asked) > 2

    watch = gpu_watch.GpuWatch(["GPU-1a"])
    watch._over = Over()
    watch._run()
    assert asked == [gpu_watch.EVERY_S, pytest.approx(0.6), gpu_watch.EVERY_S]


def test_a_watch_is_used_again_and_leaves_no_thread(played):
    watch, threads = gpu_watch.GpuWatch(["GPU-1a"]), threading.active_count()
    for joules in (1.0, 2.0):
        watch.begin()
        assert threading.active_count() == threads + 1
        played.millijoules += int(1000 * joules)
        assert [use.joules for use in watch.end()] == [joules]
        assert threading.active_count() == threads


def test_each_gpu_is_told_of_as_far_as_its_card_goes_and_without_one_nvml_is_not_opened(played):
    threads = threading.active_count()
    assert watched(lambda: [threading.active_count()].index(threads)) == []
    assert not played.initialised
    assert watched(lambda: None, "GPU-1a", "GPU-2b", "GPU-of another host") == [WHOLE, PART]


def test_where_nvml_does_not_answer_nothing_is_known(played, monkeypatch):
    played.fails = 1
    assert watched(lambda: None, "GPU-1a") == [], "no driver"
    monkeypatch.setattr(gpu_watch, "LIBRARY", "libnvidia-ml.so.of-nobody")
    assert watched(lambda: None, "GPU-1a") == []


@pytest.mark.skipif(not os.path.exists(noise.STAT), reason="counts are Linux's")
def test_a_meter_tells_of_the_rank_s_gpus(played):
    def used(*uuids):
        meter = noise.Meter(uuids)
        meter.begin()
        played.millijoules += 2000
        return meter.end()

    assert (used("GPU-1a").gpus, used("GPU-1a").gpu_joules) == ([WHOLE._replace(joules=2.0)], 2.0)
    assert used("GPU-1a", "GPU-2b").gpu_joules is None, "of one of them nobody knows"
    assert (used().gpus, used().gpu_joules) == ([], None)


def test_every_sample_counts_the_same_in_a_mean(monkeypatch):
    watts = [100.0, 200.0, 600.0, 100.0]

    class Card:
        def joules(self):
            return None

        def sample(self):
            return PART._replace(watts=watts.pop(0))

    monkeypatch.setattr(gpu_watch, "cards", lambda uuids: [Card()])
    monkeypatch.setattr(gpu_watch, "EVERY_S", 3600.0)
    watch = gpu_watch.GpuWatch(["GPU-2b"])
    watch.begin()
    for _ in range(3):
        watch._look()
    (use,) = watch.end()
    assert use.watts == pytest.approx(250.0)


def test_stretches_of_time_become_one():
    hot = WHOLE._replace(
        busy_share=0.2, watts=100.0, most_watts=650.0, celsius=85, throttled_by=["thermal", "power cap"], joules=3.0
    )
    (found,) = gpu_watch.together([(1.0, [WHOLE._replace(joules=1.0)]), (3.0, [hot])])
    assert found == hot._replace(
        busy_share=pytest.approx(0.35), watts=pytest.approx(150.0), throttled_by=["power cap", "thermal"], joules=4.0
    )
    (found,) = gpu_watch.together([(1.0, [WHOLE]), (1.0, [GpuUse("GPU-1a")])])
    assert found == WHOLE._replace(joules=None), "what one of them lacks the others tell, but no sum"
    assert gpu_watch.together([(1.0, [PART]), (2.0, [PART])]) == [PART._replace(busy_share=pytest.approx(0.8))]
    assert gpu_watch.together([(1.0, []), (1.0, [])]) == []
