"""Every adapter that is registered here, through the suite that is shipped; `test_refusals` has its other part.

What needs a framework runs in the adapter's own interpreter, and is skipped where there is none.
"""

from stagebench_conformance import Faults, Measured, probe_graph

from suite.plugins import adapters
from workloads.kinds import KINDS

# Known gaps, one list per adapter: a test's name, or name[strategy-tuning], and why it cannot pass. A gap that has
# closed fails.
GAPS: dict[str, dict[str, str]] = {}


class Case(Measured, Faults):
    """One of these for each adapter."""


for _name in sorted(adapters()):
    globals()[f"Test_{_name}"] = type(f"Test_{_name}", (Case,), {"adapter": _name, "gaps": GAPS.get(_name, {})})


def test_the_probe_holds_every_kind():
    assert {layer.kind for layer in probe_graph().layers} == set(KINDS)


def test_every_gap_is_an_adapter_s():
    assert set(GAPS) <= set(adapters())
