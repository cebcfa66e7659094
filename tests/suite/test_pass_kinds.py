"""The declarations of passes: each can be run."""

import pytest

from suite.worker.pass_kinds import BY_NAME, KERNELS, LOSSES, PASS_KINDS, TRAIN, USUAL, PassKind
from suite.worker.passes import Passes


@pytest.mark.parametrize("kind", PASS_KINDS, ids=lambda kind: kind.name)
def test_a_pass_has_a_runner_and_pairs_with_a_known_pass(kind: PassKind) -> None:
    assert kind.name in (KERNELS, TRAIN) or callable(getattr(Passes, f"_{kind.name}"))
    assert not kind.against or kind.against in BY_NAME


def test_a_pass_is_skipped_in_words_where_it_would_measure_nothing() -> None:
    skipped = {kind.name for kind in PASS_KINDS if kind.skipped(1, False)}
    assert skipped == {"resident", "io_only", "compute_only", "comm_only"}
    assert not any(kind.skipped(2, True) for kind in PASS_KINDS)


def test_the_usual_passes_and_those_with_a_loss() -> None:
    assert USUAL == ("native", "staged", "resident", "compute_only", "comm_only", "io_only")
    assert LOSSES == ("native", "staged", "compute_only")
