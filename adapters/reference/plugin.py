"""The reference as the controller sees it: NumPy in float64, the oracle of every proof."""

from stagebench.suite.contracts.adapter import INFERENCE, Adapter, Capabilities, Strategy
from stagebench.suite.contracts.case import Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.knobs import Knob

TRAINING = ("single",)  # the strategies that its knobs affect


class Reference(Adapter):
    """Every layer's forward and backward written out in NumPy; small, slow, and right."""

    contract = 4
    name = "reference"
    title = "NumPy float64 reference"
    package = "stagebench.adapters.reference"
    requires = ("numpy",)
    environment = None
    oracle = True
    remedy = "pip install numpy"

    capabilities = Capabilities(
        strategies=(
            Strategy(
                "single",
                "stagebench.adapters.reference.base:ReferenceTrainer",
                "one process",
                distributed=False,
                changing_rate=True,
                clips=True,
            ),
            Strategy(
                INFERENCE,
                "stagebench.adapters.reference.inference:ReferencePredictor",
                "no training: answers of one process",
                infers=True,
                distributed=False,
            ),
        ),
        precisions=("float64",),
        tunings=("default",),
        optimisers=("sgd", "adam", "adamw"),
        real_data=False,
        knobs={
            "shards": Knob(
                int, 1, "equal parts of the batch, each computed as by a data-parallel rank", TRAINING, least=1
            ),
            "bits": Knob(
                int, 53, "significant bits to which every layer's result is rounded", TRAINING, least=4, most=53
            ),
            "observed": Knob(
                int, 1, "of them, how many the running statistics see, one after the other", TRAINING, least=1
            ),
        },
    )

    def unsupported(self, case: Configuration) -> str | None:
        """The batch must divide into its shards, and no more shards can be observed than there are."""
        shards = case.knobs["shards"]
        observed = case.knobs["observed"]
        if case.batch % shards:
            return f"a batch of {case.batch} does not divide into shards = {shards} equal parts; choose a divisor"
        if observed > shards:
            return f"observed = {observed}, but there are {shards} shards to see"
        return None


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [Reference()]
