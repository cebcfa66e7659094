"""An adapter that is right but for one mistake is caught by its proof, and the proof says by what."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from stagebench_conformance import probe
from stagebench_conformance.measured import DECAY

from suite.contracts.adapter import Adapter, Capabilities, Strategy
from suite.contracts.case import Case, Placement
from suite.contracts.hooks import hookimpl
from suite.contracts.knobs import Knob
from suite.plugins import manager
from suite.proofs.prove import Proofs
from suite.session.training import launch_of_case

WORKER = dedent('''
    """The reference with one mistake, which the knob names."""

    import numpy as np

    from adapters.reference.strategies.single import ReferenceTrainer


    class MistakenTrainer(ReferenceTrainer):
        def __init__(self, setup):
            rule, self.mistake = setup.optimiser, setup.knobs["mistake"]
            changed = {
                "weight decay": rule._replace(weight_decay=0.0),
                "momentum": rule._replace(momentum=0.0),
                "learning rate": rule._replace(lr=rule.lr * 1.001),
            }
            knobs = dict(setup.knobs, shards=1, observed=1)
            super().__init__(setup._replace(optimiser=changed.get(self.mistake, rule), knobs=knobs))

        def build(self, graph, weights):
            if self.mistake == "weights":
                weights = {name: tensor * 1.001 for name, tensor in weights.items()}
            super().build(graph, weights)

        def step(self, batch):
            if self.mistake == "native steps":
                batch = batch._replace(images=batch.images * 1.001)
            super().step(batch)
            if self.mistake == "two updates":
                super().step(batch)

        def update(self):
            if self.mistake != "no update":
                super().update()

        def loss(self):
            return super().loss() * (2.0 if self.mistake == "loss" else 1.0)

        def logits(self):
            found = super().logits()
            return found.T if self.mistake == "logits' shape" else found

        def gradients(self):
            found = super().gradients()
            if self.mistake == "a gradient":
                found["fc1.bias"] = found["fc1.bias"] + 1e-3
            if self.mistake == "no gradient":
                del found["fc1.bias"]
            if self.mistake == "a gradient's shape":
                found["fc1.weight"] = found["fc1.weight"].T
            return found

        def parameters(self):
            found = super().parameters()
            if self.mistake == "running statistics":
                found["left_bn.running_var"] = found["left_bn.running_var"] * 1.1
            return found

        def parameter_count(self):
            return super().parameter_count() + (self.mistake == "parameters")

        def macs(self):
            return super().macs() * (2 if self.mistake == "multiply-accumulates" else 1)
''')
MISTAKES = {
    "none": "",
    "weight decay": "staged parameter of",
    "momentum": "staged parameter of",
    "learning rate": "staged parameter of",
    "weights": "logits of logits",
    "native steps": "native",
    "two updates": "native",
    "no update": "staged parameter of",
    "loss": "staged loss",
    "logits' shape": "logits of logits is missing, no number, or of another shape",
    "a gradient": "gradient of fc1.bias is off by",
    "no gradient": "gradient of fc1.bias is missing",
    "a gradient's shape": "gradient of fc1.weight is missing, no number, or of another shape",
    "running statistics": "parameter of left_bn.running_var",
    "parameters": "parameter_count is",
    "multiply-accumulates": "macs is",
}


class Mistaken(Adapter):
    """The reference's worker half under another name."""

    contract = 2
    name, title, trainer = "mistaken", "Mistaken", "mistaken.worker:MistakenTrainer"
    requires, builds_on = ("numpy",), ("adapters.reference",)
    capabilities = Capabilities(
        strategies=(Strategy("single", "one", ("local",), distributed=False),),
        precisions=("float64",),
        tunings=("default",),
        knobs={"mistake": Knob(str, "none", "what is wrong")},
    )


class Plugin:
    @hookimpl
    def stagebench_adapters(self) -> list[Adapter]:
        return [Mistaken()]


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder, plugin = tmp_path_factory.mktemp("mistaken"), Plugin()
    (folder / "mistaken").mkdir()
    (folder / "mistaken" / "__init__.py").touch()
    (folder / "mistaken" / "worker.py").write_text(WORKER)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("STAGEBENCH_CACHE", str(folder / "cache"))
        manager().register(plugin)
        probe.register()
        yield
        manager().unregister(plugin)


@pytest.mark.usefixtures("mistaken")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_caught_and_named(mistake: str, tmp_path: Path) -> None:
    case = Case("mistaken", "single", "probe", Placement(launcher="local"), precision="float64").on(
        weight_decay=DECAY, knobs={"mistake": mistake}
    )
    proof = Proofs({}).prove(case, launch_of_case(case, {}, tmp_path / "bundle"), tmp_path)
    assert (proof.passed, MISTAKES[mistake] in proof.reason) == (mistake == "none", True), proof.reason
