"""A slice of the campaign; `tox run -e faults` has all of it."""

import random
import subprocess
from pathlib import Path

import pytest

from tests.faults import campaign, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]


def test_runs_with_a_fault_lose_nothing(tmp_path: Path) -> None:
    faults = ["SIGKILL of the controller", "SIGKILL of a rank", "full disk", "a damaged record"]
    found = list(campaign.campaign(range(len(faults)), 5, 2, tmp_path, faults, mpi=False))
    assert [case.fault for case in found] == faults
    assert not [problem for case in found for problem in case.problems]


def test_a_process_that_stays_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the campaign proves nothing."""
    monkeypatch.setattr(campaign, "GOES", 0.5)
    subprocess.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 &"], cwd=tmp_path, check=True)
    case = run.Run(0, "none", (), tmp_path, None, 0, 0.0, random.Random(1))
    campaign.no_orphans(case, "the fault")
    assert len(case.problems) == 1
    assert "was left after the fault" in case.problems[0]
    assert not case.processes()
