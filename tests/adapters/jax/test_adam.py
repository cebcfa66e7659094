"""Adam is the rule that `suite.worker.contract.Adam` writes down, alone and on several devices."""

import pytest

from suite.worker.contract import Adam
from tests.support import proofs
from tests.support.networks import one_convolution

# An epsilon as large as the gradients' roots: one that stands in the wrong place shows at once.
LARGE, USUAL = Adam(0.01, 0.8, 0.99, 0.05, 0.1), Adam(1e-3, 0.9, 0.999, 1e-7, 0.0)


@pytest.mark.parametrize(
    ("rule", "precision", "tuning", "strategy"),
    [
        (USUAL, "float32", "tuned", "single"),
        (LARGE, "float64", "default", "single"),
        (LARGE, "float32", "default", "pmap"),
    ],
)
def test_every_update_is_the_formulas(trainer, rule, precision, tuning, strategy):
    ours = trainer(strategy=strategy, tuning=tuning, precision=precision, batch=4, optimiser=rule)
    proofs.assert_updates_follow(ours, one_convolution(), rule)
