"""What the system counts around a measurement, and what a measurement says of its machine."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import toy

from stagebench.suite.worker import machine, noise
from stagebench.suite.worker.messages import GpuSettings, GpuUse, HostUse
from stagebench.suite.worker.tasks import subnormal_note
from tests.support import trainers

linux = pytest.mark.skipif(not os.path.exists(noise.STAT), reason="counts are Linux's")
STAT = "cpu0 100 10 50 1000 20 5 5 300 7 0\ncpu1 9 9 9 9 9 9 9 9 9 0\ncpu2 0 0 0 100 0 0 0 0 0 0\n"


def test_idle_and_stolen_time_are_of_some_cpus_and_the_reference_computation_is_timed():
    found = [seconds * noise.TICK for seconds in noise.cpu_times(STAT, {0, 2})]
    assert found == pytest.approx([1020 + 100, 300, 1490 + 100])
    for text in ("", "cpu0 1 2\n", "intr 1 2 3 4 5 6 7 8 9\n", "cpu 1 2 3 4 5 6 7 8 9\n"):
        assert noise.cpu_times(text, {0}) is None
    found = noise.reference()
    assert len(found) == noise.TIMES
    assert 0 < min(found) <= max(found)


class Host:
    """A host of 128 CPUs, of which this process has eight; `busy` of them were in use for ten seconds, by whomever."""

    def __init__(self, monkeypatch, tmp_path):
        self._stat, self._now = tmp_path / "stat", 0.0
        monkeypatch.setattr("stagebench.suite.worker.noise.STAT", str(self._stat))
        monkeypatch.setattr("stagebench.suite.worker.noise.own_cpus", lambda: set(range(8)))
        monkeypatch.setattr("stagebench.suite.worker.noise.own_pids", lambda: [1])
        monkeypatch.setattr("stagebench.suite.worker.noise.time", self)
        self._ticks, self._own = dict.fromkeys(range(128), (0, 0)), 0.0

    def perf_counter(self):
        return self._now

    def clock_gettime(self, clock):
        return self._own

    def pass_by(self, busy, own):
        """Ten seconds, in which `own` seconds of CPU were this measurement's."""
        self._now, self._own = self._now + 10.0, self._own + own
        for cpu, (used, idle) in self._ticks.items():
            self._ticks[cpu] = (used + 1000 * (cpu in busy), idle + 1000 * (cpu not in busy))
        rows = ["cpu%d %d 0 0 %d 0 0 0 0 0 0" % (cpu, *both) for cpu, both in self._ticks.items()]
        self._stat.write_text("cpu 0 0 0 0 0 0 0 0 0 0\n" + "\n".join(rows) + "\n")


@pytest.mark.parametrize(
    ("busy", "own", "others"),
    [
        (range(8), 40.0, 0.5),  # another job on exactly these cores
        (range(8, 128), 0.0, 0.0),  # a busy host, and none of it is ours
        (range(8), 80.0, 0.0),
        (range(4), 38.0, 0.025),
    ],
)
def test_others_are_those_on_the_rank_s_own_cores(monkeypatch, tmp_path, busy, own, others):
    host = Host(monkeypatch, tmp_path)
    host.pass_by(set(), 0.0)
    meter = noise.Meter()
    meter.begin()
    host.pass_by(set(busy), own)
    found = meter.end()
    assert found.cores == 8
    assert (found.busy_cpu_s - found.own_cpu_s) / 80.0 == pytest.approx(others)
    assert noise.disturbance(found) == pytest.approx(others / 0.03)


@linux
def test_a_meter_counts_this_measurement_s_processes_and_nobody_else_s(monkeypatch):
    monkeypatch.setenv("STAGEBENCH_ATTEMPT", f"of a test in {os.getpid()}")
    spinning = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    meter = noise.Meter()
    marked = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)\n" + spinning + "\ntime.sleep(600)"])
    try:
        spent, own = time.process_time(), (~marked.pid << 3) | 2  # the clock of its processor time
        before = time.clock_gettime(own)
        meter.begin()
        time.sleep(0.2)
        with subprocess.Popen([sys.executable, "-c", spinning], env=dict(os.environ, STAGEBENCH_ATTEMPT="of another")):
            pass
        deadline = time.time() + 120.0
        while time.clock_gettime(own) < before + 0.3 and time.time() < deadline:
            time.sleep(0.05)
        found = meter.end()
        spent = time.process_time() - spent
    finally:
        marked.kill()
        marked.wait()
    assert 0.25 < found.own_cpu_s - spent < 0.7
    assert found.busy_cpu_s > found.own_cpu_s + 0.2
    assert found.seconds > 0.2
    assert found.cores == len(os.sched_getaffinity(0))


@linux
def test_own_processes_are_told_apart_by_a_mark_alone(monkeypatch):
    # Not in /proc/self/environ, as of a forked rank.
    monkeypatch.setenv("STAGEBENCH_ATTEMPT", f"of a test in {os.getpid()}")
    assert noise.own_pids() == [os.getpid()]
    monkeypatch.delenv("STAGEBENCH_ATTEMPT", raising=False)
    meter = noise.Meter()
    meter.begin()
    assert meter.end().own_cpu_s is None


@pytest.mark.parametrize(
    ("seconds", "others", "stolen", "own", "expected"),
    [
        (1.0, 0.0, 0.0, 1.0, 0.0),
        (1.0, 0.03, 0.0, 1.0, 0.5),  # of two cores in a second three hundredths are too much
        (1.0, 0.15, 0.0, 1.0, 2.5),
        (1.0, 0.0, 0.1, 1.0, 2.5),
        (1.0, 0.5, 0.0, None, 0.0),  # nothing tells them apart
        (1.0, 0.5, 0.1, None, 2.5),  # but what was stolen is known
        (0.01, 0.5, 0.0, 1.0, 0.0),  # nobody counts so finely
    ],
)
def test_others_disturb_by_their_share_of_a_rank_s_cores(seconds, others, stolen, own, expected):
    use = HostUse(seconds=seconds, busy_cpu_s=1.0 + others, steal_cpu_s=stolen, cores=2, own_cpu_s=own)
    assert noise.disturbance(use) == pytest.approx(expected)
    assert noise.disturbance(None) == 0.0


def test_stretches_of_time_add_up_where_the_system_counted_in_all_of_them():
    use = HostUse(0.5, 1.0, 0.01, 2, own_cpu_s=0.5, clock_hz=2e9, cpu_joules=5.0)
    later = use._replace(clock_hz=3e9)
    assert noise.together([use, later]) == HostUse(1.0, 2.0, 0.02, 2, own_cpu_s=1.0, clock_hz=3e9, cpu_joules=10.0)
    assert noise.together([use, use._replace(own_cpu_s=None)]).own_cpu_s is None
    assert noise.together([use, None]) is None
    gpus = [use._replace(gpu_joules=2.0, gpus=[GpuUse("GPU-1a", joules=2.0, celsius=each)]) for each in (50, 60)]
    whole = noise.together(gpus)
    assert (whole.gpu_joules, whole.gpus) == (4.0, [GpuUse("GPU-1a", joules=4.0, celsius=60)])


def test_the_clock_is_that_of_the_rank_s_cores(tmp_path):
    for core, khz in ((0, 1000), (1, 3000), (2, 9000)):
        (tmp_path / str(core)).write_text("%d\n" % khz)
    assert noise.clock_hz([0, 1], str(tmp_path / "%d")) == pytest.approx(2e6)
    table = tmp_path / "cpuinfo"
    table.write_text("processor : 0\ncpu MHz : 1000.0\n\nprocessor : 1\ncpu MHz : 3000.0\n")
    assert noise.clock_hz([1], str(tmp_path / "none%d"), str(table)) == pytest.approx(3e9)
    assert noise.clock_hz([1], str(tmp_path / "none%d"), str(tmp_path / "none")) is None


def test_gpus_by_uuid_their_driver_and_what_they_are_set_to(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho '0, NVIDIA H100, GPU-1a, 550.1, 1980, 700.00, Enabled, Disabled'\n"
        "echo '1, NVIDIA H100, GPU-2b, 550.1, [N/A], [Not Supported], Disabled, [N/A]'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    devices = ["GPU 0: NVIDIA H100 (UUID: GPU-1a)", "GPU 1: NVIDIA H100 (UUID: GPU-2b)"]
    settings = [GpuSettings(1.98e9, 700.0, persistence=True, ecc=False), GpuSettings(persistence=False)]
    assert machine.gpus() == (devices, "550.1", settings)
    program.write_text("#!/bin/sh\nexit 9\n")
    assert machine.gpus() == ([], None, [])


def test_links_are_those_that_the_system_names(tmp_path):
    for name, content in {
        "net/eth0/operstate": "up\n",
        "net/eth0/speed": "10000\n",
        "net/eth1/operstate": "up\n",
        "net/eth1/speed": "-1\n",
        "net/lo/operstate": "unknown\n",
        "ib/mlx5_0/ports/1/rate": "56 Gb/sec (4X FDR)\n",
        "pci/0000:17:00.0/class": "0x030200\n",
        "pci/0000:17:00.0/max_link_speed": "8.0 GT/s PCIe\n",
        "pci/0000:17:00.0/max_link_width": "16\n",
        "pci/0000:18:00.0/class": "0x020000\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    found = machine.networks(str(tmp_path / "net"), str(tmp_path / "ib"))
    assert found == ["eth0, 10000 Mbit/s", "eth1", "mlx5_0, 56 Gb/sec (4X FDR)"]
    assert machine.gpu_links(str(tmp_path / "pci")) == ["8.0 GT/s PCIe x16"]


@pytest.mark.parametrize(
    ("parameters", "gradients", "named"),
    [(0, 0, None), (1, 1, None), (5, 0, "0.5 % of the parameters"), (0, 20, "2 % of the gradients")],
)
def test_subnormal_numbers_are_named(parameters, gradients, named):
    def numbers(small):
        """A thousand, of which so many are subnormal, and half are zero."""
        values = np.repeat(np.array([1e-40, 1.0, 0.0], dtype=np.float32), [small, 500 - small, 500])
        return {"fc.weight": values}

    trainer = toy.ToyTrainer(trainers.setup())
    trainer.parameters, trainer.gradients = (lambda: numbers(parameters)), (lambda: numbers(gradients))
    assert subnormal_note(trainer, "a batch") == ({"subnormal": named} if named else {})
    assert trainer.calls == ["forward", "backward"]
    alone = subnormal_note(trainer)
    assert alone == ({"subnormal": named} if parameters > 1 else {}), "without a batch there are no gradients"
