"""The conformance suite: passing it is what "adapter" means.

    from stagebench_conformance import AdapterConformance

    class TestLumen(AdapterConformance):
        adapter = "lumen"
        gaps = {"test_every_kind_of_layer_is_proven[ddp-tuned]": "lumen 2.1 has no grouped convolution"}
        refusals = [({"strategy": "single", "batch": 3}, "words of the answer")]

Needs stagebench with its extra `conformance`; the adapter must be registered (its package installed). Where the
framework's environment is not there, what needs it fails, with the remedy; with `where_missing = "skip"` it is skipped.
"""

from stagebench.suite.proofs.every_adapter import probe_graph
from stagebench_conformance.base import Conformance
from stagebench_conformance.communicating import Communicating
from stagebench_conformance.declared import Declared
from stagebench_conformance.faults import Faults
from stagebench_conformance.measured import Measured
from stagebench_conformance.reading import Reading

__all__ = [
    "AdapterConformance",
    "Communicating",
    "Conformance",
    "Declared",
    "Faults",
    "Measured",
    "Reading",
    "probe_graph",
]


class AdapterConformance(Declared, Measured, Reading, Communicating, Faults):
    """All of it: what an adapter declares, proves, measures, reads, exchanges; what a fault of its framework costs."""
