"""What the page says of a strategy that does not wait for a straggler beside one that does."""

import pytest

from stagebench.reports.pages.communication import slowed_of
from stagebench.suite.analysis.summary import summarise
from tests.reports.made_experiments import FREER, stragglers

TRIED = "(0%, 50% and 75%)"


@pytest.mark.parametrize(
    ("freer", "seeds", "words"),
    [
        (FREER, (1, 2, 3), "once a straggler loses "),
        ((3.0, 3.0, 3.0), (1, 2, 3), f"at every share tried {TRIED}."),
        ((0.2, 0.1, 0.05), (1, 2, 3), f"at none of the shares tried {TRIED}."),
        ((3.0, 0.1, 0.05), (1, 2, 3), "at 0% alone, of 0%, 50% and 75%."),
        ((3.0, 3.0, 3.0), (1,), f"at every share tried {TRIED}; a single seed has no interval."),
        (FREER, (1,), "at 50% and 75% alone, of 0%, 50% and 75%; a single seed has no interval."),
        ((1.4, 1.4, 1.4), (1, 2), "; no detectable difference at 0%."),  # which no interval shows
    ],
)  # fmt: skip
def test_where_a_strategy_that_does_not_wait_is_sooner(freer, seeds, words, tmp_path):
    (found,) = slowed_of(summarise(stragglers(tmp_path / "run", freer, seeds)))
    assert found.answers[-1].startswith("PyTorch dist_async is sooner than PyTorch ddp ")
    assert words in found.answers[-1]
