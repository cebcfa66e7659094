"""`stagebench check-run`: a whole run of a stranger is taken; a damaged or altered one is refused, with the place."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagebench.adapters.reference.plugin import Reference
from stagebench.reports.command import import_
from stagebench.suite.analysis.check_run import Checked, check_run
from stagebench.suite.errors import RequestError, StoreError
from stagebench.suite.processes import bundle
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import sealed
from stagebench.suite.worker import messages
from tests.reports.made_run import MadeRun, case_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUNS = max((FIXTURES / "runs").iterdir())


@pytest.fixture(params=["training", "comm"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(RUNS / request.param, tmp_path / "stranger"))


def with_evidence(run: Path) -> Path:
    """Give a run the messages of its ranks, and one adapter's bundle."""
    for record in RunFolder.open(run).records():
        folder = run / "attempts" / f"{record.case_id}-r{record.repeat}"
        folder.mkdir(parents=True)
        for rank in record.ranks:
            layers = [messages.Layers(list(rank.layers))] if rank.layers is not None else []
            wire = [messages.Wire(rank.wire, list(rank.connections))] if rank.wire is not None else []
            sent: list[Any] = [rank.hello, rank.joined, rank.built, *wire, rank.noise, rank.memory, rank.failed]
            sent += [rank.peaks, *rank.passes.values(), *layers, rank.kernels, rank.training]
            sent.append(messages.Notes(rank.notes))
            lines = [messages.encode(message) for message in sent if message is not None]
            (folder / f"rank-{rank.rank}.jsonl").write_text("".join(f"{line.strip()}\n" for line in lines))
    return run


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change a file's JSON, with a new digest; return the file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(sealed(json.dumps({**content, "digest": ""}, indent=1)))
    return path


def record_in(run: Path) -> Path:
    """The file of a record with a speed."""
    ok = next(each for each in RunFolder.open(run, None).records() if each.outcome == "ok" and each.ranks[0].passes)
    return run / "records" / f"{ok.case_id}-r{ok.repeat}.json"


def blamed(found: Checked) -> set[str]:
    return {problem.file for problem in found.problems}


def test_a_stranger_s_run_is_whole(run: Path) -> None:
    found = check_run(run)
    assert found.problems == []
    assert found.records == len(list((run / "records").iterdir()))
    assert found.marks["disturbed"] > 0
    assert any("have no bundle" in note for note in found.notes), "what is not there cannot be checked"


def test_any_byte_that_is_flipped_is_found_in_its_file(run: Path) -> None:
    files = sorted(path for path in run.rglob("*") if path.is_file())

    @settings(max_examples=120, deadline=None)
    @given(st.sampled_from(files), st.integers(0), st.integers(1, 255))
    def holds(path: Path, at: int, bits: int) -> None:
        whole = path.read_bytes()
        at %= len(whole)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ bits]) + whole[at + 1 :])
        try:
            found = check_run(run).problems[0].file
        except RequestError as error:  # of another format
            found = path.name if path.name == "run.json" and str(path) in str(error) else str(error)
        path.write_bytes(whole)
        assert found == path.relative_to(run).as_posix()

    holds()
    assert check_run(run).problems == []


def test_any_number_of_a_rank_that_was_changed_with_a_new_digest_is_named_by_its_key(tmp_path: Path) -> None:
    run = with_evidence(shutil.copytree(RUNS / "training", tmp_path / "run"))
    assert check_run(run).problems == []
    path = record_in(run)
    whole, draw = path.read_text(), random.Random(7)

    def numbers(value: Any, place: str) -> list[tuple[str, Any, Any]]:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        own = [(f"{place}.{key}", value, key) for key, each in items if isinstance(each, float)]
        return own + [found for key, each in items for found in numbers(each, f"{place}.{key}")]

    for _ in range(30):
        content = json.loads(whole)
        place, holder, key = draw.choice(numbers(content["ranks"][0], "ranks.0"))
        holder[key] *= 1.0001
        path.write_text(sealed(json.dumps({**content, "digest": ""}, indent=1)))
        pairs = zip(json.dumps(json.loads(whole), indent=1).splitlines(), path.read_text().splitlines(), strict=True)
        changed = [at for at, (before, after) in enumerate(pairs, 1) if before != after]  # the digest's line is first
        found = [problem.line for problem in check_run(run).problems if problem.why.startswith(f"{place}: ")]
        assert found == changed[1:], place
    path.write_text(whole)
    sent = run / "attempts" / path.stem / "rank-0.jsonl"
    sent.write_text(re.sub('("wall_s": ?)', r"\g<1>1", sent.read_text(), count=1))
    assert blamed(check_run(run)) == {f"records/{path.name}"}


CHANGES: list[tuple[str, Callable[[Path], object], str, str]] = [
    (
        "a sum",
        lambda run: edited(record_in(run), lambda it: it["ranks"][0]["passes"]["native"].update(samples=1)),
        "records/",
        "rank 0, pass 'native'",
    ),
    ("a time", lambda run: edited(record_in(run), lambda it: it.update(seconds=-1.0)), "records/", "seconds = -1"),
    ("no proof", lambda run: [each.unlink() for each in run.glob("proofs/*")], "records/", "proof: proofs/"),
    (
        "a verdict",
        lambda run: [edited(each, lambda it: it["worst"].update(error=1.0)) for each in run.glob("proofs/*")],
        "proofs/",
        "it passed, and its worst error",
    ),
    (
        "another's proof",
        lambda run: [edited(each, lambda it: it.update(workload="vgg16")) for each in run.glob("proofs/*")],
        "records/",
        "proves another workload",
    ),
    ("a host", lambda run: next(run.glob("hosts/*")).unlink(), "records/", "hosts/vm.json is missing"),
    ("the plan", lambda run: (run / "plan.toml").unlink(), "plan.toml", "changed, or lost"),
    ("a case", lambda run: edited(run / "cases.json", lambda it: it["cases"].pop()), "records/", "no case"),
    ("a link", lambda run: (run / "records" / "x.json").symlink_to("/etc/hostname"), "records/x.json", "is a link"),
    ("a type", lambda run: edited(record_in(run), lambda it: it.update(repeat="0")), "records/", "repeat: "),
]


@pytest.mark.parametrize(("change", "file", "why"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES])
def test_a_change_with_new_digests_that_cannot_be_is_found_in_its_place(
    tmp_path: Path, change: Callable[[Path], object], file: str, why: str
) -> None:
    run = shutil.copytree(RUNS / "training", tmp_path / "run")
    change(run)
    found = check_run(run)
    if file == "records/" and why == "no case":  # a record without a case is used nowhere: it is no lie, and noted
        assert any("of no case of this plan" in note for note in found.notes)
        return
    assert any(problem.file.startswith(file) and why in problem.why for problem in found.problems), found.problems
    keyed = [problem.line for problem in found.problems if re.match(r"rank \d|[\w.]+: ", problem.why)]
    assert None not in keyed


def test_code_that_did_not_run_is_found(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    code = bundle.write(Reference(), tmp_path / "run" / "bundles" / "reference")
    made.proven(case_of("reference", "mnist_small"), bundle=bundle.written_digest(code))
    assert check_run(tmp_path / "run").problems == []
    (code / "workloads" / "graph.py").write_text("")
    assert {problem.why.partition(":")[0] for problem in check_run(tmp_path / "run").problems} == {"bundle"}


def test_imported_results_are_checked_too(tmp_path: Path) -> None:
    import_([FIXTURES / "foreign" / "horovod.log"], tmp_path / "run", None)
    assert check_run(tmp_path / "run").problems == []
    path = tmp_path / "run" / "foreign.json"
    path.write_text(path.read_text().replace("400.0", "900.0"))
    assert blamed(check_run(tmp_path / "run")) == {"foreign.json"}


def test_the_command_ends_with_the_code_of_the_worst_run(
    run: Path, tmp_path: Path, stagebench: Any, refusal: Any
) -> None:
    told = stagebench("check-run", str(run), str(RUNS / "comm"))
    assert (told.code, told.out.count("whole and unaltered")) == (0, 2)
    assert "Without signatures" in told.out
    assert str(tmp_path) in refusal("check-run", tmp_path)
    path = next((run / "records").iterdir())
    path.write_text(path.read_text() + "\n")
    told = stagebench("check-run", str(RUNS / "comm"), str(run))
    assert (told.code, f"records/{path.name}: " in told.out) == (1, True)
    told = stagebench("check-run", str(run), "--json")
    found = [(one["whole"], one["problems"][0]["file"]) for one in json.loads(told.stdout)]
    assert (told.code, found) == (1, [(False, f"records/{path.name}")])


def test_a_run_that_can_no_longer_be_read_is_a_problem_and_no_error(run: Path) -> None:
    (run / "run.json").write_text("{")
    assert blamed(check_run(run)) == {"run.json"}
    with pytest.raises(StoreError):
        _ = RunFolder(run).about
