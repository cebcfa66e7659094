"""How noisy a machine was, and when a process counts as disturbed."""

import pytest

from suite.analysis.noise import Noise, noise_of
from suite.results.records import HostUse, Rank
from suite.results.records import Noise as Reported
from tests.reports.made_run import MadeRun, case_of

QUIET = Noise(0.01, 0.0, 1.02, 3.0)


def test_a_quiet_process_is_not_disturbed():
    assert not QUIET.disturbed
    assert not Noise(None, None, None, None).disturbed, "nobody could tell"


@pytest.mark.parametrize("values", [(0.2, 0.0, 1.0, 0.0), (0.0, 0.1, 1.0, 0.0), (0.0, 0.0, 1.5, 0.0)])
def test_what_has_a_part_of_the_cores_disturbs(values):
    assert Noise(*values).disturbed


def test_it_is_that_of_the_rank_with_most_of_it(tmp_path):
    run = MadeRun(tmp_path / "run")
    run.add(case_of(ranks=2))
    record = next(iter(run.folder.records()))
    use = HostUse(
        seconds=2.0,
        cores=2,
        busy_cpu_s=3.0,
        own_cpu_s=2.0,
        steal_cpu_s=0.4,
        involuntary_switches=10,
    )
    noisy = Reported(reference_before_s=(0.01, 0.01), reference_after_s=(0.03, 0.03), native=use)
    found = noise_of(record.but(ranks=(record.ranks[0], record.ranks[1].but(noise=noisy))))
    assert (found.busy_share, found.steal_share, found.switches_per_s) == (0.25, 0.1, 5.0)
    assert found.reference_slowdown == pytest.approx(2.0)
    assert found.disturbed
    assert isinstance(record.ranks[0], Rank)
