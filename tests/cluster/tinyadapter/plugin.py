"""The controller's side of an adapter that only meets its ranks: launchers are tested with it."""

from stagebench.suite.contracts.adapter import Adapter, Capabilities, Strategy
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.knobs import Knob

TRAINER = "tinyadapter.worker:TinyTrainer"


class Tiny(Adapter):
    contract = 4
    name = "tiny"
    title = "Tiny"
    package = "tinyadapter"
    requires = ()

    @property
    def capabilities(self):
        return Capabilities(
            (
                Strategy("mpi", TRAINER, "meets over MPI", mpi=True),
                Strategy("meets", TRAINER, "meets by itself"),
                Strategy("alone", TRAINER, "meets nobody", ("local", "slurm")),
            ),
            knobs={
                "dies": Knob(int, -1, "the rank that ends in its third step"),
                "signal": Knob(str, "SIGKILL", "by which it does"),
                "raises": Knob(int, -1, "the rank that raises an exception there"),
                "pace": Knob(float, 0.001, "seconds of a step"),
                "quiet": Knob(bool, False, "exchange numbers only"),
            },
        )


@hookimpl
def stagebench_adapters():
    return [Tiny()]
