"""What the GPUs of a training did: each once, marked where heat or its hardware slowed it down."""

from dataclasses import replace
from typing import Any

import pytest

from stagebench.suite.analysis.comparability import NOTED
from stagebench.suite.analysis.machine import FAULTS, Gpu
from stagebench.suite.worker import gpu_watch
from stagebench.suite.worker.messages import GpuUse
from tests.reports.made_run import case_of

Reported = dict[str, Any]
MODEL = "GPU 0: NVIDIA H100 (UUID: GPU-1)"


def during(name: str, *hosts: tuple[str, list[Reported]]):
    """Ranks that report the host and what their GPUs did."""

    def change(record: Reported) -> None:
        use = {"seconds": 100.0, "busy_cpu_s": 1.0, "steal_cpu_s": 0.0, "cores": 2}
        for rank, (host, gpus) in zip(record["ranks"], hosts, strict=True):
            rank["hello"] |= {"host": host, "machine": {"cpu": "AMD EPYC 7B13", "gpus": [MODEL]}}
            reference = {"reference_before_s": [0.1], "reference_after_s": [0.1]}
            rank["noise"] = {**reference, name: {**use, "cpu_joules": 40.0, "gpus": gpus}}

    return change


@pytest.mark.parametrize("name", ["native", "train"])
def test_what_ranks_of_a_host_share_is_reported_once(run, name):
    case = run.add(case_of(ranks=3), repeats=1)
    first = {"uuid": "GPU-1", "busy_share": 0.4, "most_watts": 600.0, "celsius": 60, "throttled_by": ["power cap"]}
    second = {"uuid": "GPU-1", "busy_share": 0.6, "least_sm_clock_hz": 1e9, "celsius": 70, "throttled_by": ["thermal"]}
    third = {"uuid": "GPU-1", "watts": 300.0}
    run.changed(case, during(name, ("a", [first]), ("a", [second]), ("b", [third])), [0])
    both = {"busy_share": 0.5, "most_watts": 600.0, "least_sm_clock_hz": 1e9, "celsius": 70}
    shared = GpuUse(uuid="GPU-1", throttled_by=["power cap", "thermal"], **both)
    (process,) = run.only().processes
    other = GpuUse(uuid="GPU-1", watts=300.0)
    assert process.gpus == (Gpu("a", "NVIDIA H100", shared), Gpu("b", "NVIDIA H100", other))
    assert run.only().to_dict()["processes"][0]["gpus"][0]["use"]["celsius"] == 70


def test_the_words_are_those_that_ranks_write_and_processes_on_the_same_gpu_are_one_row(run):
    case = run.add(case_of())
    for repeat, watts in enumerate((100.0, 200.0, 300.0)):
        run.changed(case, during("native", ("a", [{"uuid": "GPU-1", "watts": watts}])), [repeat])
    (found,) = run.only().gpus
    assert found.use == GpuUse(uuid="GPU-1", watts=200.0)
    assert set(gpu_watch.REASONS.values()) > FAULTS


@pytest.mark.parametrize(
    ("reasons", "marked"),
    [
        (None, False),  # nobody tells
        ([], False),
        (["power cap", "set clocks"], False),
        (["power cap", "thermal"], True),
        (["hardware slowdown"], True),
    ],
)
def test_what_should_not_slow_a_gpu_down_is_a_mark_that_excludes_nothing(run, reasons, marked):
    case = run.proven(case_of())
    run.changed(case, during("native", ("a", [{"uuid": "GPU-1", "throttled_by": reasons}])), [1])
    row = run.only()
    assert ("GPU throttled" in row.marks) is marked
    assert row.comparable
    assert "GPU throttled" in NOTED


def test_the_energy_of_gpus_is_that_of_the_driven_ones_each_once(run):
    case = case_of(ranks=2)
    case = run.proven(case.on(placement=replace(case.placement, device="cuda")), repeats=1)

    def joules(*ranks):
        reported = [(host, [{"uuid": uuid, "joules": used} for uuid, used in gpus]) for host, gpus in ranks]
        run.changed(case, during("native", *reported), [0])
        row = run.only()
        return row.joules_per_sample and row.joules_per_sample * row.processes[0].samples

    assert joules(("a", [("GPU-1", 60.0)]), ("a", [("GPU-2", 50.0)])) == pytest.approx(150.0)
    assert joules(("a", [("GPU-1", 60.0)]), ("a", [("GPU-1", 61.0)])) == pytest.approx(101.0), "they share it"
    assert joules(("a", [("GPU-1", 60.0)]), ("b", [("GPU-2", 50.0)])) == pytest.approx(190.0)
    assert joules(("a", [("GPU-1", 60.0)]), ("a", [("GPU-2", None)])) is None, "a card without a counter"
    assert joules(("a", [("GPU-1", 60.0)]), ("a", [])) is None, "a rank whose cards nobody knows"
