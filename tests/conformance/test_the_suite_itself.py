"""The suite fails where it should: gaps that closed, gaps that name nothing, adapters that are not what they say."""

import os
import subprocess
import sys

import pytest

HEAD = """
from stagebench_conformance import {part}
from stagebench.suite.contracts.adapter import Adapter, Capabilities, Format, Strategy
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.plugins import manager

class Odd(Adapter):
    contract = 4
    name, title, package, environment, remedy = "{name}", "Odd", "{name}", "{name}", "tox run -e {name}"
    one = Strategy("single", "{name}.worker:{trainer}", "one", ("local",), distributed=False)
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
from stagebench.suite.{core} import Trainer
class OddTrainer(Trainer): pass
"""
PLAIN = {
    "part": "Declared",
    "body": "pass",
    "gaps": "{}",
    "refusals": "()",
    "more": "pass",
    "formats": "",
    "trainer": "OddTrainer",
    "extra": "json",
    "core": "worker.trainer",
    "worker": WORKER,
}


def told(folder, variants, tests=""):
    """The summary lines of pytest on adapters of these names; `tests`: of which, as its -k takes them."""
    for name, changes in variants.items():
        made = {**PLAIN, "name": name, "adapter": name, **changes}
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
        (folder / name / "worker.py").write_text(made["worker"].format(**made))
        (folder / f"test_{name}.py").write_text(HEAD.format(**made))
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider", "-k", tests, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "1000"},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "SKIPPED"))]


def of_adapter(rows, name):
    """Test name: the words of its failure; what passed is left out."""
    found = [row.partition("::TestOdd::")[2] for row in rows if f"test_{name}.py" in row and row[0] != "S"]
    return {name: words for name, _, words in (row.partition(" - ") for row in found)}


WHOLE, GAP, IMPORTS = (
    "test_its_declaration_is_whole",
    "test_every_gap_names_a_test",
    "adapter names its own in `requires`",
)
REFUSES = {"refusals": "[({'batch': 3}, 'odd')]"}
WRONG = {  # changes, the test that fails, its words
    "closed": ({"gaps": f'{{"{WHOLE}": "it passes"}}'}, WHOLE, "XPASS(strict)"),
    "of_nothing": ({"gaps": '{"test_nothing": "why"}'}, GAP, "names no test of this suite"),
    "of_no_case": (
        {"gaps": f'{{"{WHOLE}[ddp-tuned]": "why"}}'},
        GAP,
        "names no case; there are [single-default], [single-tuned]",
    ),
    "unreasoned": ({"gaps": '{"test_its_own_refusals_say_why": " "}'}, GAP, "has no reason"),
    "absent": ({"adapter": "even"}, WHOLE, "no installed package brings an adapter 'even'"),
    "imports": ({"extra": "torch"}, "test_its_bundle_imports_only_what_it_declares", IMPORTS),
    "controller": ({"core": "case"}, "test_its_bundle_imports_only_what_it_declares", IMPORTS),
    "trainerless": (
        {"trainer": "EvenTrainer"},
        "test_its_declared_trainers_are_in_its_bundle",
        "trainerless.worker has no class 'EvenTrainer' but ['OddTrainer']",
    ),
    "unlisted": (
        {"body": "unsupported = lambda self, case: 'no' if case.batch == 3 else None"},
        "test_its_own_refusals_say_why",
        "stands in `refusals`",
    ),
    "best": (
        {"formats": "Format('best', 'the best'),"},
        "test_its_record_formats_are_whole",
        "the plan has these words",
    ),
    "twice": (
        {"formats": "Format('one', 'x'), Format('one', 'y')"},
        "test_its_record_formats_are_whole",
        "another adapter has a format 'one'",
    ),
    "unrefused": (REFUSES, "test_its_own_refusals_say_why", "{'batch': 3}"),
}
RIGHT = {
    "right": {},
    "reasoned": {"gaps": '{"test_its_own_refusals_say_why": "the words are not settled"}', **REFUSES},
}
WITHOUT = {
    "part": "AdapterConformance",
    "body": "requires = ('a_framework_of_nobody',)",
    "extra": "a_framework_of_nobody",
}
ABSENT = {"fails": WITHOUT, "skips": {**WITHOUT, "more": 'where_missing = "skip"'}}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Those of all adapters together: what takes time is pytest's start."""
    wrong = {name: changes for name, (changes, _, _) in WRONG.items()}
    return told(tmp_path_factory.mktemp("odd"), {**wrong, **RIGHT, **ABSENT})


@pytest.mark.parametrize("name", RIGHT)
def test_an_adapter_that_is_what_it_says_passes_and_so_does_a_gap_with_its_reason(rows, name):
    assert of_adapter(rows, name) == {}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_fails_and_says_why(rows, name):
    _, test, words = WRONG[name]
    found = of_adapter(rows, name)
    assert words in found[test], found


def remedy(name):
    return f"Make its environment with `tox run -e {name}`, or name one with --python {name}=/path/to/python"


def test_without_its_framework_an_adapter_fails_and_says_how_to_get_it(rows):
    found = of_adapter(rows, "fails")
    assert set(found) == {
        "test_every_kind_of_layer_is_proven[single-default]",
        "test_every_kind_of_layer_is_proven[single-tuned]",
        "test_every_kind_of_layer_over_tokens_is_proven",
        "test_it_is_proven_and_measures_every_pass_that_has_something_to_measure[single-default]",
        "test_it_is_proven_and_measures_every_pass_that_has_something_to_measure[single-tuned]",
        "test_it_drops_out_predicts_and_steps_alone[single-default]",
        "test_it_drops_out_predicts_and_steps_alone[single-tuned]",
        "test_two_threads_share_the_work[single-default]",
        "test_two_threads_share_the_work[single-tuned]",
        "test_it_learns",
        "test_it_reads_data_in_a_pass_of_its_own",
        "test_every_reader_delivers_the_same_samples[folder]",
        "test_every_reader_delivers_the_same_samples[arrays]",
        "test_a_fault_of_its_framework_is_one_row_and_the_others_go_on",
    }
    for words in found.values():
        assert "fails: no interpreter has NumPy and a_framework_of_nobody" in words
        assert remedy("fails") in words


def test_without_its_framework_an_adapter_is_skipped_where_its_class_says_so(rows):
    assert of_adapter(rows, "skips") == {}
    assert sum(int(row.split("[")[1].split("]")[0]) for row in rows if remedy("skips") in row and row[0] == "S") == 14


# The reference by another name, which promises less precision than it has.
REFERENCE = """from dataclasses import replace
    from stagebench.adapters.reference.plugin import Reference
    builds_on, requires, environment = ("stagebench.adapters.reference",), ("numpy",), None
    strategies = (replace(Reference.capabilities.strategies[0], trainer=one.trainer),)
    capabilities = replace(Reference.capabilities, precisions=("float32",), strategies=strategies)"""
PROMISED = """
import hashlib

from stagebench.adapters.reference.base import ReferenceTrainer
from stagebench.suite.worker import behaviour

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
        if batch.inputs.shape[1:] == behaviour.work().input_shape:
            hashlib.sha256(bytes(1 << 22)).digest()
        else:
            Promised.step(self, batch)
"""


def mistaken(folder, worker, tests):
    """What fails of these tests of the whole suite, on the reference with that worker."""
    odd = {"part": "AdapterConformance", "body": REFERENCE, "worker": PROMISED + worker}
    return of_adapter(told(folder, {"odd": odd}, tests), "odd")


def test_an_adapter_that_forgets_weight_decay_is_proven_by_no_optimiser(tmp_path):
    found = mistaken(tmp_path, FORGETS_DECAY, "every_kind_of_layer or every_optimiser")
    tokens, adam = (
        found.pop(f"test_{name}_is_proven") for name in ("every_kind_of_layer_over_tokens", "every_optimiser")
    )
    assert list(found) == ["test_every_kind_of_layer_is_proven[single-default]"]
    assert found.popitem()[1].startswith("AssertionError: staged parameter of ")
    assert tokens.startswith("AssertionError: single: staged parameter of "), tokens
    assert adam.startswith("AssertionError: adam, single: staged parameter of "), adam


def test_an_adapter_of_one_thread_needs_no_gap(tmp_path):
    body = (
        REFERENCE + "\n    unsupported = lambda self, case: 'it has one thread' if case.placement.threads > 1 else None"
    )
    worker = PROMISED + "class OddTrainer(Promised): pass"
    (row,) = told(tmp_path, {"odd": {"part": "AdapterConformance", "body": body, "worker": worker}}, "two_threads")
    assert row.startswith("SKIPPED")
    assert "it has one thread" in row


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core nothing is asked about two threads")
def test_an_adapter_that_ignores_its_threads_fails_the_look_at_its_behaviour(tmp_path):
    found = mistaken(tmp_path, WORKS_ALONE, "two_threads")
    assert list(found) == ["test_two_threads_share_the_work[single-default]"]
    (words,) = found.values()
    assert words.startswith("AssertionError: step: 2 threads were asked for, and 1."), words
