"""A slice of the campaign; `tox run -e faults` has all of it."""

from pathlib import Path

import pytest

from tests.faults import campaign

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]


def test_runs_with_a_fault_lose_nothing(tmp_path: Path) -> None:
    faults = ["SIGKILL of the controller", "SIGKILL of a rank", "full disk", "a damaged record"]
    found = campaign.campaign(len(faults), 5, 2, tmp_path, faults, mpi=False)
    assert [case.fault for case in found] == faults
    assert not [problem for case in found for problem in case.problems]


def test_a_lost_record_and_an_orphan_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the campaign proves nothing."""
    monkeypatch.setattr(campaign, "GOES", 0.5)

    def stray(case: campaign.Case, controller: "campaign.subprocess.Popen[bytes]") -> None:
        controller.wait()
        path = min((case.folder / "run" / "records").iterdir())
        path.write_text(path.read_text().replace('"outcome": "ok"', '"outcome": "crash"'))
        campaign.subprocess.Popen([campaign.sys.executable, "-c", "import time; time.sleep(60)"], cwd=case.folder)

    monkeypatch.setitem(campaign.FAULTS, "none", stray)
    (case,) = campaign.campaign(1, 5, 1, tmp_path, ["none"], mpi=False)
    assert any("was left after the fault" in problem for problem in case.problems)
