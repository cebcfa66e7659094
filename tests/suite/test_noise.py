"""How noisy the machine was, from what the ranks of a record report."""

import pytest

from stagebench.suite.analysis.machine import Noise, beside_run, best_of_run, noise_of, references_of
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.results.records import Interpreter, Record
from stagebench.suite.worker.messages import GpuUse, HostUse, Pass
from stagebench.suite.worker.messages import Noise as Reported
from tests.reports.made_run import case_of, record_of
from tests.support.sent import hello


def record(*ranks: Rank) -> Record:
    found = record_of(case_of(), 0)
    return Record.model_validate({**found, "ranks": [rank.model_dump() for rank in ranks]})


def rank(number: int, use: HostUse | None, *reference_s: float) -> Rank:
    return Rank(rank=number, noise=Reported(reference_before_s=reference_s, reference_after_s=reference_s, native=use))


def use(own_cpu_s: float | None, steal_cpu_s: float = 0.0) -> HostUse:
    cpu = {"own_cpu_s": own_cpu_s, "busy_cpu_s": 15.0, "steal_cpu_s": steal_cpu_s}
    return HostUse(seconds=10.0, cores=2, **cpu)


def test_the_noisiest_host_and_rank_and_the_slowest_gpu_count():
    found = noise_of(record(rank(0, use(14.0, 1.0), 0.1, 0.1), rank(1, use(11.0, 4.0), 0.1, 0.3, 0.2)))
    assert found.busy_share == pytest.approx(0.2)
    assert found.steal_share == pytest.approx(0.2)
    assert found.reference_slowdown == pytest.approx(2.0)
    gpus = [GpuUse("GPU-1", sm_clock_hz=1.9e9), GpuUse("GPU-2", sm_clock_hz=1.2e9), GpuUse("GPU-3")]
    assert noise_of(record(rank(0, use(11.0)._replace(gpus=gpus)), rank(1, use(11.0)))).gpu_clock_hz == 1.2e9
    native = Pass(name="native", samples=2, steady=True, warmup_s=(), step_s=(1.0, 2.0), wall_s=3.0)
    quiet, used = (Rank(rank=0, passes={"native": native._replace(set_aside_s=aside)}) for aside in (None, (0.5, 0.5)))
    assert noise_of(record(quiet)).set_aside_share == 0.0
    assert noise_of(record(quiet, used)).set_aside_share == pytest.approx(0.25)


def test_a_training_is_as_noisy_as_all_of_its_epochs():
    clocked = use(11.0)._replace(clock_hz=3e9)
    several = (
        Rank(rank=number, noise=noise)
        for number, noise in enumerate(
            Reported(reference_before_s=[0.1], reference_after_s=[0.1], train=each)
            for each in (clocked, clocked._replace(clock_hz=2e9))
        )
    )
    found = noise_of(record(*several))
    assert found.busy_share == pytest.approx(0.2)
    assert found.clock_hz == 2e9


def slow_throughout(*host_s: tuple[str, str, float, float]) -> list[bool]:
    """Whether processes are disturbed: of each its host, its interpreter, and the seconds of its computation."""
    records = []
    for host, python, *seconds in host_s:
        one = rank(0, None, *seconds).but(hello=hello(host=host, cores=[0]))
        records.append(record(one).but(interpreter=Interpreter(path=python, origin="", version="3.11")))
    every = [references_of(one) for one in records]
    best = best_of_run(each for several in every for each in several)
    pairs = zip(records, every, strict=True)
    return [beside_run(noise_of(one), several, best).disturbed for one, several in pairs]


def test_a_process_that_is_slow_throughout_is_held_against_the_best_of_its_host():
    """As where the host's clock was halved: beside its own best it always took the same time."""
    assert slow_throughout(("a", "/python", 0.10, 0.11), ("a", "/python", 0.20, 0.21)) == [False, True]
    assert slow_throughout(("a", "/python", 0.10, 0.11), ("a", "/python", 0.12, 0.12)) == [False, False]
    assert slow_throughout(("a", "/python", 0.10, 0.11), ("b", "/python", 0.20, 0.21)) == [False, False]
    assert slow_throughout(("a", "/python", 0.10, 0.11), ("a", "/python3.6", 0.20, 0.21)) == [False, False]


def test_what_nobody_could_tell_is_none_and_a_quiet_process_is_not_disturbed():
    assert noise_of(record(Rank(rank=0))) == Noise(None, None, None)
    assert noise_of(record(rank(0, None))) == Noise(None, None, None)
    assert noise_of(record(rank(0, use(None), 0.1))).busy_share is None
    assert noise_of(record(rank(0, None, 0.1))) == Noise(None, None, 1.0)
    assert not Noise(0.01, 0.0, 1.02).disturbed
    assert not Noise(None, None, None).disturbed, "nobody could tell"


@pytest.mark.parametrize("values", [(0.04, 0.0, 1.0), (0.0, 0.03, 1.0), (0.0, 0.0, 1.5)])
def test_what_has_a_part_of_the_cores_disturbs(values):
    assert Noise(*values).disturbed
