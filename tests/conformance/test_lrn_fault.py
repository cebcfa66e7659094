"""MXNet's own LRN has a wrong gradient (oneDNN's, in 1.9.1): the gate that passes the composed one must refuse it."""

import pytest
from stagebench_conformance import AdapterConformance, probe

from suite.proofs.make import Proofs


class OverMXNet(AdapterConformance):
    adapter, where_missing = "mxnet", "skip"
    __test__ = False  # the whole suite runs in test_adapters.py


@pytest.mark.parametrize("lrn", ["composed", "native"])
def test_the_gate_refuses_the_native_one_for_its_gradient(lrn, tmp_path):
    probe.register()
    mxnet = OverMXNet()
    plain = mxnet.plain()
    case = plain.on(workload="probe", knobs={**plain.knobs, "lrn": lrn})
    proof = Proofs({}).prove(case, mxnet.launch(case, tmp_path), tmp_path)
    assert proof.passed == (lrn == "composed"), proof.reason
    worst = max(proof.errors["gradient"].values())
    assert worst < 1e-5 if lrn == "composed" else worst > 0.1
    assert ("gradient of conv1" in proof.reason) == (lrn == "native")
