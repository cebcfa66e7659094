"""Files of a run folder: what is read back, what is refused and how, and the schema."""

import json
import shutil
from pathlib import Path

import pytest

from stagebench.suite.cli.schema import schema
from stagebench.suite.errors import RequestError, StoreError
from stagebench.suite.results.records import COMM, About, Host, Record
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import FORMAT
from stagebench.suite.worker.messages import Machine
from tests.support.errors import raising

CHECKOUT = Path(__file__).parents[2]
RUNS = CHECKOUT / "tests" / "fixtures" / "runs"
FORMATS = sorted(path.name for path in RUNS.iterdir())
WRONG = ["", "[]", "{}", "3", "[" * 100_000, '{"format": 1, "ranks": {}}']


@pytest.fixture(params=FORMATS)
def run(request, tmp_path):
    """A copy of a whole run of every format."""
    shutil.copytree(RUNS / request.param / "training", tmp_path / "run")
    return tmp_path / "run"


def everything(run: Path) -> None:
    folder = RunFolder.open(run)
    list(folder.records())
    for why in folder.invalid.values():
        raise StoreError(str(run / why))
    folder.proofs()
    folder.hosts()
    assert folder.cases


def unsealed(folder: RunFolder) -> list[Record]:
    """Its records as any run has them."""
    return [record.but(digest="", run="", plan="") for record in folder.records()]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda text: text[:12])
@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        ("records/*.json", "it is measured again when the run goes on"),
        ("cases.json", "remove it and give the run's own command again"),
        ("proofs/*.json", "remove it: the rows that name it are without proof"),
        ("hosts/*.json", "remove it: the page then does without it"),
    ],
)
def test_valid_json_of_the_wrong_shape_is_one_message_with_its_remedy(run, pattern, remedy, wrong):
    path = sorted(run.glob(pattern))[0]
    path.write_text(wrong)
    with pytest.raises(StoreError) as error:
        everything(run)
    assert str(error.value).startswith(str(path))
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", ["", "[]", "null", "[[[["])
def test_a_broken_run_json_is_not_mended_by_removing_it(run, wrong):
    (run / "run.json").write_text(wrong)
    with pytest.raises(StoreError, match=r"run\.json .*made again"):
        RunFolder.open(run)


def test_the_field_that_does_not_fit_is_named(run):
    path = next(path for path in sorted((run / "records").iterdir()) if '"native"' in path.read_text())
    record = json.loads(path.read_text())
    record["ranks"][0]["passes"]["native"]["wall_s"] = "3.5"
    path.write_text(json.dumps(record))
    with pytest.raises(StoreError, match=r"ranks\.0\.passes\.native\.wall_s: "):
        everything(run)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (FORMAT + 1, f"has format {FORMAT + 1}, and .* format {FORMAT}; read it with the version that wrote it"),
        (FORMAT - 1, f"has format {FORMAT - 1}, and .* format {FORMAT}; measure it again, into a new folder"),
        (None, f"names no format, and this stagebench reads format {FORMAT}; measure it again, into a new folder"),
    ],
)
def test_another_format_is_refused_with_its_remedy(run, written, words):
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "format": written}))
    with pytest.raises(RequestError, match=words):
        RunFolder.open(run)


def test_a_run_of_another_kind_is_refused():
    with raising(RequestError, "comm", "training"):
        RunFolder.open(RUNS / "format-5" / "comm")
    with raising(RequestError, "training", "comm"):
        RunFolder.open(RUNS / "format-5" / "training", COMM)


def test_what_is_written_is_read_back(run, tmp_path):
    then, now = RunFolder.open(run), RunFolder(tmp_path / "again")
    now.create(then.about)
    now.write_cases(then.cases, then.scale)
    for record in then.records():
        now.write_record(record)
    assert (now.about.but(id=""), now.cases) == (then.about.but(id=""), then.cases)
    assert unsealed(now) == unsealed(then)


def test_a_run_of_another_method_is_not_continued(run):
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "method": 1}))
    with raising(RequestError, 1):
        RunFolder(run).create(About())


def test_hosts_that_only_ranks_know_get_a_file(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create(About())
    folder.write_host(Host(host="vm", machine=Machine(cpu="ours")))
    record = next(RunFolder.open(RUNS / "format-5" / "training").records())
    machine = Machine(cpu="theirs", memory_bytes=2**30)
    ranks = [
        rank.but(hello=rank.hello and rank.hello._replace(host=host, machine=machine, host_cores=4))
        for rank in record.ranks
        for host in ("vm", "node-2")
    ]
    folder.write_record(record.but(ranks=ranks))
    assert folder.hosts()["vm"].machine.cpu == "ours"
    assert folder.hosts()["node-2"].but(digest="") == Host(host="node-2", machine=machine, cores_installed=4)


def test_the_published_schema_is_that_of_the_types():
    published = CHECKOUT / "docs" / "format-5.schema.json"
    assert published.read_text() == schema(), "python -m stagebench.suite.cli.schema > docs/format-5.schema.json"
