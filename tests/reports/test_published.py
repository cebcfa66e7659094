"""No page and no export bears a home folder, and nothing that a run folder names leaves the place it is written to."""

import pytest

from stagebench.reports.exports import write as exports
from stagebench.reports.site import build
from stagebench.reports.site.many import publish
from stagebench.suite.files import file_name
from tests.reports.made_run import MadeRun, case_of, learner_of

ADA, GRACE = "/srv/people/ada-lovelace", "/home/grace-hopper"  # who reports; who measured
NAMES = (b"ada-lovelace", b"grace-hopper", b"/root/lib")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", ADA)
    run = MadeRun(tmp_path / "runs" / "one")
    (run.folder.path / "plan.toml").write_text(f'name = "quick"\ndata = "{GRACE}/photos"\n')
    run.proven(case_of(data=f"{GRACE}/photos", knobs={"library": "/root/lib.so"}))
    notes = lambda record: record["ranks"][0]["notes"].update(read=f"{ADA}/x")  # noqa: E731
    run.changed(run.proven(case_of(data=f"{GRACE}/photos", batch=16)), notes)
    logs = {"logs": {"rank-0.log": [f"{GRACE}/train.py, line 7"]}}
    run.add(case_of("caffempi"), repeats=1, outcome="crash", reason=f"no {GRACE}/a.so", ranks=[], evidence=logs)
    return run


def test_no_home_folder_is_published(run, tmp_path):
    build.write(run.folder, tmp_path / "site")
    build.write(run.folder, tmp_path / "single", single=True)
    publish(tmp_path / "runs", tmp_path / "published")
    for name in {*exports.TABLES, *exports.DOCUMENTS} - {"parquet"}:
        exports.write(run.folder, name, tmp_path / "exports")
    written = [path for name in ("site", "single", "published", "exports") for path in (tmp_path / name).rglob("*")]
    assert len(written) > 40
    for path in written:
        if path.is_file():
            content = path.read_bytes()
            assert not [name for name in NAMES if name in content], path


def test_an_adapter_s_name_cannot_leave_the_folder(tmp_path):
    run = MadeRun(tmp_path / "run")
    run.proven(case_of("../../../escaped", passes=("train",)), ranks=[learner_of(0.0)])
    exports.write(run.folder, "mlperf", tmp_path / "deep" / "er")
    assert len(list((tmp_path / "deep" / "er" / "mlperf").iterdir())) == 3
    assert not list(tmp_path.rglob("escaped*"))
    assert file_name("..", "a/b\0c", "mxnet") == "a_b_c-mxnet"
