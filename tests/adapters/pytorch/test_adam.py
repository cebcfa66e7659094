"""Adam is the rule that `suite.worker.contract` writes down, in either tuning."""

import pytest

from suite.worker.contract import Adam
from tests.support import networks, proofs


# An epsilon as large as the gradients' roots: one that stands in the wrong place shows at once.
@pytest.mark.parametrize("rule", [Adam(1e-3, 0.9, 0.999, 1e-7, 0.0), Adam(0.01, 0.8, 0.99, 0.05, 0.1)])
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_every_update_is_the_formulas(trainer, rule, precision, tuning):
    ours = trainer(tuning=tuning, precision=precision, batch=4, optimiser=rule)
    proofs.assert_updates_follow(ours, networks.one_convolution(), rule)
