"""One network in parts beside one on each device: what the page says of every strategy that splits a network."""

from pathlib import Path

import pytest

from stagebench.reports.pages.run import Report
from stagebench.reports.pages.stages import parts
from stagebench.suite.analysis.summary import summarise
from tests.reports.made_run import MadeRun, case_of, declared

SPLIT = {"pipeline": 0.8, "tensor_parallel": 1.5, "hybrid": 1.0}  # how many times slower than `ddp`
NONE = "no verdict: fewer than two processes to compare"


def answers(run: MadeRun) -> list[str]:
    section = parts(Report(run.folder, summarise(run.folder)))
    return list(section.answers) if section else []


def answered(path: Path, processes: int) -> list[str]:
    """By two strategies with a network on each device, and by those of SPLIT, the pipeline in two settings."""
    run, whole = MadeRun(path), declared()
    for strategy, slower in (("ddp", 1.0), ("accumulate", 1.3)):
        run.proven(case_of(ranks=2, strategy=strategy), repeats=processes, slower=slower, declared=whole)
    for strategy, slower in SPLIT.items():
        case = case_of(ranks=2, strategy=strategy, knobs={"microbatches": 2})
        run.proven(case, repeats=processes, slower=slower, declared={**whole, "model_parallel_size": 2})
    worse = case_of(ranks=2, strategy="pipeline", knobs={"microbatches": 8})
    run.proven(worse, repeats=processes, slower=2.0, declared={**whole, "model_parallel_size": 2})
    return answers(run)


def test_every_strategy_that_splits_a_network_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    found, place = answered(tmp_path / "run", 3), "alexnet on imagenet-like on 2 devices"
    assert found[:3] == [
        f"One network in parts is faster than one on each device: {place} (PyTorch pipeline).",
        f"One network on each device is faster than one in parts: {place} (PyTorch tensor_parallel).",
        f"No difference is detectable between one network in parts and one on each device: {place} (PyTorch hybrid).",
    ]
    assert [sentence.partition(" reaches ")[0].partition(": ")[2] for sentence in found[3:]] == [
        "PyTorch pipeline · microbatches=2",
        "PyTorch hybrid",
        "PyTorch tensor_parallel",
    ]
    assert all("PyTorch ddp" in sentence for sentence in found[3:]), "beside the fastest that splits nothing"


def test_one_process_says_which_was_faster_and_that_it_is_no_verdict(tmp_path: Path) -> None:
    found, place = answered(tmp_path / "run", 1), "alexnet on imagenet-like on 2 devices"
    faster = "One network in parts was faster than one on each device, without a verdict"
    assert found[0] == f"{faster}: {place} (PyTorch pipeline)."
    assert found[1].startswith("One network on each device was faster than one in parts, without a verdict: ")
    by = {
        sentence.partition(" reaches ")[0].partition("PyTorch ")[2].partition(" ")[0]: sentence
        for sentence in found[2:]
    }
    assert f"(faster by 25\u00a0%, {NONE})" in by["pipeline"]
    assert f"(slower by 33\u00a0%, {NONE})" in by["tensor_parallel"]


@pytest.mark.parametrize("split", [True, False])
def test_without_the_other_kind_there_is_nothing_to_compare(split: bool, run: MadeRun) -> None:
    for strategy in ("ddp", "hybrid"):
        run.proven(case_of(ranks=2, strategy=strategy), declared={**declared(), "model_parallel_size": 1 + split})
    assert answers(run) == []
