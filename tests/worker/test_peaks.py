"""Measured peaks, and the energy that a host's processors have used."""

import numpy as np
import pytest
from toy import ToyTrainer

from stagebench.suite.worker import machine, messages, peaks
from stagebench.suite.worker.tasks import measure_peaks, send_memory
from tests.support import jobs
from tests.support.trainers import setup


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(peaks, "SIDES", (64, 128))
    monkeypatch.setattr(peaks, "BYTES", (1 << 16, 1 << 18))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_cores_multiply_and_copy(quick, precision):
    yardstick = peaks.on_cores(setup(precision=precision, devices=2, threads=2))
    (first, second) = yardstick.product(8)()
    assert first.dtype == second.dtype == precision
    found = peaks.measure(yardstick, 2, lambda: None, 0.01)
    assert found.flop_per_s > 1e6
    assert found.bytes_per_s > 1e6
    assert found.library == "NumPy " + np.__version__


@pytest.mark.parametrize("changes", [{"device": "cuda"}, {"precision": "bfloat16"}])
def test_what_numpy_cannot_do_is_the_adapter_s(changes):
    assert peaks.on_cores(setup(**changes)) is None


@pytest.fixture
def best(monkeypatch):
    """A function that gives the best rate of a work on a clock of its own, and the sizes that were tried."""
    clock = [0.0]
    monkeypatch.setattr(peaks.time, "perf_counter", lambda: clock[0])

    def found(sizes, seconds, rate=lambda size: size, longest=peaks.LONGEST_S):
        made = []

        def work(size):
            made.append(size)
            return lambda: clock.__setitem__(0, clock[0] + seconds(size))

        return peaks._best(work, sizes, rate, lambda: None, longest), made

    return found


def test_a_call_is_large_enough_to_be_timed_and_the_quickest_counts(best, monkeypatch):
    hiccups = iter([3.0, 1.0, 1.5, 1.0, 2.0] + 20 * [1.2])
    monkeypatch.setattr(peaks, "REPEAT_S", 0.1)
    monkeypatch.setattr(peaks, "LONG_S", 0.02)
    rate, made = best((10000, 10**9), lambda size: size / 1e6 * next(hiccups))
    assert made == [10000, 20000, 40000], "one more size, which does no more in a second"
    assert rate == pytest.approx(1e6)


def test_a_product_grows_until_its_rate_levels_off(best):
    """As a library on many cores: at a thousand a side it has half of its rate, at four thousand nearly all."""

    def seconds(side):
        return 2.0 * side**3 / (3e12 * min(1.0, side / 4096.0))

    rate, made = best((512, 8192), seconds, lambda side: 2.0 * side**3)
    assert rate == pytest.approx(3e12)
    assert made == [512, 1024, 2048, 4096, 8192][: len(made)]
    assert 4096 in made
    assert best((512, 8192), seconds, longest=0.0)[1] == [512, 1024, 2048], "the first that can be timed"


class Sent(list):
    """What a rank sent; `alive` counts its signs of life."""

    send, alive = list.append, 0

    def progress(self, *place):
        self.alive += 1


def test_a_rank_reports_its_peaks_or_why_it_has_none(quick):
    sent = Sent()
    measure_peaks(ToyTrainer(setup()), sent, 0.01)
    assert [type(message) for message in sent] == [messages.Phase, messages.Peaks]
    assert sent.alive >= 4, "a sign of life after each call: products take long on busy cores"
    measure_peaks(ToyTrainer(setup(device="cuda")), sent, 0.01)
    assert type(sent[-1]) is messages.Phase
    measure_peaks(ToyTrainer(setup(knobs={"raises": {"yardstick": "MemoryError"}})), sent, 0.01)
    assert sent[-1].notes == {"peaks": "not measured: MemoryError: told to in yardstick"}


def test_memory_that_a_framework_fails_to_tell_costs_a_note():
    class Failing(ToyTrainer):
        def peak_device_bytes(self):
            raise ValueError("no statistics of GPU:0")

    sent = Sent()
    send_memory(Failing(setup()), sent)
    assert sent[0].notes == {"memory": "of devices not known: ValueError: no statistics of GPU:0"}
    assert sent[1].host_bytes > 10**7
    assert sent[1].device_bytes is None


def test_peaks_come_last_since_matrices_take_memory(make_job, work):
    toy = {"trainer": "toy:ToyTrainer", "precision": "float32", "knobs": {}}
    _, found = work(make_job(jobs.measure("native", peaks=True), **toy))
    kinds = [type(message) for message in found]
    assert kinds.index(messages.Peaks) > kinds.index(messages.Memory)


def zone(folder, name, used, whole=10**9, of="package-0"):
    """A domain of RAPL as the kernel shows it."""
    place = folder / name
    place.mkdir()
    for file, value in (("name", of), ("energy_uj", used), ("max_energy_range_uj", whole)):
        (place / file).write_text("%s\n" % value)
    return place


def test_processors_and_their_memory_are_counted_and_nothing_twice_nor_what_cannot_be_read(tmp_path):
    assert machine.joules({}, {}) is None
    package, memory = zone(tmp_path, "intel-rapl:0", 1000), zone(tmp_path, "intel-rapl:0:0", 5, of="dram")
    began_again = zone(tmp_path, "intel-rapl:4", 999_000_000)
    zone(tmp_path, "intel-rapl:0:1", 700, of="core")
    zone(tmp_path, "intel-rapl:1", 9000, of="psys")
    zone(tmp_path, "intel-rapl:2", "")
    (tmp_path / "intel-rapl:3").mkdir()
    before = machine.energy(str(tmp_path))
    assert set(before) == {str(package), str(memory), str(began_again)}
    for place, used in ((package, 3001000), (memory, 500005), (began_again, 999999)):
        (place / "energy_uj").write_text("%d\n" % used)
    assert machine.joules(before, machine.energy(str(tmp_path))) == pytest.approx(3.5 + 2.0)


def test_a_framework_multiplies_and_copies_on_every_device():
    made = []

    def put(array, dtype, device):
        made.append(device)
        return array.astype(dtype)

    ours = peaks.on_devices("toy 1", "float64", ["a", "b"], put, lambda value: value @ value, np.copy, wait=tuple)
    product, copy = ours.product(4)(), ours.copy(64)()
    assert [(each.shape, each.dtype) for each in product] == [((4, 4), np.float64)] * 2
    assert len(np.unique(product)) == 16, "equal numbers would be multiplied with less power"
    assert ([each.nbytes for each in copy], made, type(copy)) == ([64, 64], ["a", "b"] * 2, tuple)
