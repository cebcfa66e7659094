"""The controller's side of an adapter that only meets its ranks: launchers are tested with it."""

from suite.adapter import Adapter, Capabilities, Knob, Strategy


class Tiny(Adapter):
    name = "tiny"
    title = "Tiny"
    trainer = "tinyadapter.worker:TinyTrainer"
    requires = ()

    @property
    def capabilities(self):
        return Capabilities(
            (Strategy("mpi", "meets over MPI", ("mpiexec",)), Strategy("alone", "meets nobody", ("local",))),
            knobs={
                "dies": Knob(int, -1, "the rank that ends in its third step"),
                "signal": Knob(str, "SIGKILL", "by which it does"),
                "raises": Knob(int, -1, "the rank that raises an exception there"),
                "pace": Knob(float, 0.001, "seconds of a step"),
                "quiet": Knob(bool, False, "exchange numbers only"),
            },
        )
