"""Every plan that ships has pages that answer its question, small and tiny; here of times that nobody measured."""

import pytest

from stagebench.reports.site.build import write
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.plan import load, ready_made
from stagebench.suite.plan.resolve import resolve
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.session.cases import declared_of
from stagebench.suite.worker.pass_kinds import TRAIN
from tests.reports.answers import unanswered
from tests.reports.made_experiments import taught
from tests.reports.made_run import MadeRun


def made(name, scale, path):
    """A run of a plan: all that is asked for has been measured, though its data may not be on this machine."""
    run, known = MadeRun(path, name), adapters()
    for each in resolve(load(name, scale), known, launchers(), workloads()):
        case, declared = each.case, declared_of(each.case, known[each.case.adapter]).model_dump()
        if each.outcome == "unsupported":
            run.refuse(case, each.outcome, each.reason)
        elif case.passes == (TRAIN,):
            run.proven(case, repeats=case.sampling.processes, declared=declared, ranks=taught(case))
        else:
            run.proven(case, repeats=case.sampling.processes, declared=declared)
    return run.folder


@pytest.mark.parametrize(
    ("name", "scale"),
    [(name, scale) for name in ready_made() for scale in ("small", "tiny") if scale in load(name).scales],
)
def test_the_pages_of_a_plan_answer_its_question(name, scale, tmp_path):
    folder = made(name, scale, tmp_path / "run")
    assert [row.reason for row in summarise(folder) if row.outcome == "invalid"] == []
    write(folder, tmp_path / "site")
    pages = {page.name: page.read_text() for page in (tmp_path / "site").glob("*.html")}
    assert unanswered(name, pages, whole=scale == "small") == []


def test_whatever_a_plan_resolves_to_finds_its_baseline_on_one_device(tmp_path):
    """Every case has every knob of its adapter, those of how several devices hold one network, too."""
    rows = [row for row in summarise(made("model-parallel", "small", tmp_path / "run")) if row.several_devices]
    assert {row.case.strategy for row in rows} >= {"pipeline", "hybrid", "tensor_parallel", "model_parallel"}
    assert [row.case.label for row in rows if row.scaling is None] == []
