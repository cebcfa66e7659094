"""The suite fails where it should: gaps that closed, gaps that name nothing, adapters that are not what they say."""

import os
import subprocess
import sys

import pytest

HEAD = """
from stagebench_conformance import {part}
from suite.contracts.adapter import Adapter, Capabilities, Format, Strategy
from suite.contracts.hooks import hookimpl
from suite.plugins import manager

class Odd(Adapter):
    contract = 2
    name, title, package, environment, remedy = "odd", "Odd", "odd", "odd", "tox run -e odd"
    one = Strategy("single", "odd.worker:{trainer}", "one", ("local",), distributed=False)
    capabilities = Capabilities(strategies=(one,), formats=({formats}))
    {body}

class Plugin:
    @hookimpl
    def stagebench_adapters(self):
        return [Odd()]

manager().register(Plugin())

class TestOdd({part}):
    adapter, gaps, refusals = "{adapter}", {gaps}, {refusals}
    {more}
"""
WORKER = """
import numpy, {extra}
from suite.{core} import Trainer
class OddTrainer(Trainer): pass
"""


PLAIN = {
    "part": "Declared",
    "adapter": "odd",
    "body": "pass",
    "gaps": "{}",
    "refusals": "()",
    "more": "pass",
    "formats": "",
    "trainer": "OddTrainer",
}


def told(tmp_path, extra="json", core="worker.trainer", worker=WORKER, tests="", **changes):
    """The summary lines of pytest on an adapter of its own; `tests`: of which, as its -k takes them."""
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "__init__.py").write_text("")
    (tmp_path / "odd" / "worker.py").write_text(worker.format(extra=extra, core=core))
    test = tmp_path / "test_odd.py"
    test.write_text(HEAD.format(**{**PLAIN, **changes}))
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider", "-k", tests, str(test)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "1000"},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "SKIPPED"))]


def outcomes(tmp_path, **changes):
    """Test name: the words of its failure; what passed is left out."""
    rows = [line.partition("::TestOdd::")[2] for line in told(tmp_path, **changes) if not line.startswith("SKIPPED")]
    return {name: words for name, _, words in (row.partition(" - ") for row in rows)}


def test_an_adapter_that_is_what_it_says_passes(tmp_path):
    assert outcomes(tmp_path) == {}


@pytest.mark.parametrize(
    ("changes", "test", "words"),
    [
        ({"gaps": '{"test_its_declaration_is_whole": "it passes"}'}, "test_its_declaration_is_whole", "XPASS(strict)"),
        ({"gaps": '{"test_nothing": "why"}'}, "test_every_gap_names_a_test", "names no test of this suite"),
        (
            {"gaps": '{"test_its_declaration_is_whole[ddp-tuned]": "why"}'},
            "test_every_gap_names_a_test",
            "names no case; there are [single-default], [single-tuned]",
        ),
        ({"gaps": '{"test_its_own_refusals_say_why": " "}'}, "test_every_gap_names_a_test", "has no reason"),
        ({"adapter": "even"}, "test_its_declaration_is_whole", "no installed package brings an adapter 'even'"),
        ({"extra": "torch"}, "test_its_bundle_imports_only_what_it_declares", "an adapter names its own in `requires`"),
        ({"core": "case"}, "test_its_bundle_imports_only_what_it_declares", "an adapter names its own in `requires`"),
        (
            {"trainer": "EvenTrainer"},
            "test_its_declared_trainers_are_in_its_bundle",
            "odd.worker has no class 'EvenTrainer' but ['OddTrainer']",
        ),
        (
            {"body": "unsupported = lambda self, case: 'no' if case.batch == 3 else None"},
            "test_its_own_refusals_say_why",
            "stands in `refusals`",
        ),
        (
            {"formats": "Format('best', 'the best'),"},
            "test_its_record_formats_are_whole",
            "the plan has these words",
        ),
        (
            {"formats": "Format('one', 'x'), Format('one', 'y')"},
            "test_its_record_formats_are_whole",
            "another adapter has a format 'one'",
        ),
        ({"refusals": "[({'batch': 3}, 'odd')]"}, "test_its_own_refusals_say_why", "{'batch': 3}"),
    ],
)
def test_what_is_wrong_fails_and_says_why(tmp_path, changes, test, words):
    found = outcomes(tmp_path, **changes)
    assert words in found[test], found


def test_a_gap_with_its_reason_passes(tmp_path):
    gap = '{"test_its_own_refusals_say_why": "the words are not settled"}'
    assert outcomes(tmp_path, gaps=gap, refusals="[({'batch': 3}, 'odd')]") == {}


REMEDY = "Make its environment with `tox run -e odd`, or name one with --python odd=/path/to/python"
WITHOUT = {
    "part": "AdapterConformance",
    "body": "requires = ('a_framework_of_nobody',)",
    "extra": "a_framework_of_nobody",
}


def test_without_its_framework_an_adapter_fails_and_says_how_to_get_it(tmp_path):
    found = outcomes(tmp_path, **WITHOUT)
    assert set(found) == {
        "test_every_kind_of_layer_is_proven[single-default]",
        "test_every_kind_of_layer_is_proven[single-tuned]",
        "test_it_is_proven_and_measures_every_pass_that_has_something_to_measure[single-default]",
        "test_it_is_proven_and_measures_every_pass_that_has_something_to_measure[single-tuned]",
        "test_it_drops_out_predicts_and_steps_alone[single-default]",
        "test_it_drops_out_predicts_and_steps_alone[single-tuned]",
        "test_it_learns",
        "test_it_reads_data_in_a_pass_of_its_own",
        "test_every_reader_delivers_the_same_samples[folder]",
        "test_every_reader_delivers_the_same_samples[arrays]",
        "test_a_fault_of_its_framework_is_one_row_and_the_others_go_on",
    }
    for words in found.values():
        assert "odd: no interpreter has NumPy and a_framework_of_nobody" in words
        assert REMEDY in words


def test_without_its_framework_an_adapter_is_skipped_where_its_class_says_so(tmp_path):
    rows = told(tmp_path, more='where_missing = "skip"', **WITHOUT)
    assert [row.split(" ")[0] for row in rows] == ["SKIPPED"] * len(rows)
    assert sum(int(row.split("[")[1].split("]")[0]) for row in rows if REMEDY in row) == 11


# The reference by another name, which promises less precision than it has.
REFERENCE = """from dataclasses import replace
    from adapters.reference.plugin import Reference
    builds_on, requires, environment = ("adapters.reference",), ("numpy",), None
    strategies = (replace(Reference.capabilities.strategies[0], trainer=one.trainer),)
    capabilities = replace(Reference.capabilities, precisions=("float32",), strategies=strategies)"""
PROMISED = """
import hashlib

from adapters.reference.base import ReferenceTrainer
from suite.worker import behaviour

class Promised(ReferenceTrainer):
    def __init__(self, setup):
        ReferenceTrainer.__init__(self, setup._replace(precision="float64"))
"""
FORGETS_DECAY = """
class OddTrainer(Promised):
    def __init__(self, setup):
        Promised.__init__(self, setup._replace(optimiser=setup.optimiser._replace(weight_decay=0.0)))
"""
WORKS_ALONE = """
behaviour.LIMIT_S = 2.0

class OddTrainer(Promised):
    def step(self, batch):
        if batch.images.shape[1:] == behaviour.work().input_shape:
            hashlib.sha256(bytes(1 << 22)).digest()
        else:
            Promised.step(self, batch)
"""


def mistaken(tmp_path, worker, tests):
    """What fails of these tests of the whole suite, on the reference with that worker."""
    return outcomes(tmp_path, part="AdapterConformance", body=REFERENCE, worker=PROMISED + worker, tests=tests)


def test_an_adapter_that_forgets_weight_decay_is_proven_by_no_optimiser(tmp_path):
    found = mistaken(tmp_path, FORGETS_DECAY, "every_kind_of_layer or every_optimiser")
    assert set(found) == {"test_every_kind_of_layer_is_proven[single-default]", "test_every_optimiser_is_proven"}
    plain, adam = found.values()
    assert plain.startswith("AssertionError: staged parameter of "), plain
    assert adam.startswith("AssertionError: adam, single: staged parameter of "), adam


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core nothing is asked about two threads")
def test_an_adapter_that_ignores_its_threads_fails_the_look_at_its_behaviour(tmp_path):
    found = mistaken(tmp_path, WORKS_ALONE, "drops_out")
    assert list(found) == ["test_it_drops_out_predicts_and_steps_alone[single-default]"]
    (words,) = found.values()
    assert words.startswith("AssertionError: step: of 2 threads 1."), words
