"""The controller's side of an adapter that only meets its ranks: launchers are tested with it."""

from suite.adapter import Adapter, Capabilities, Strategy


class Tiny(Adapter):
    name = "tiny"
    title = "Tiny"
    trainer = "tinyadapter.worker:TinyTrainer"
    requires = ()

    @property
    def capabilities(self):
        return Capabilities(
            (
                Strategy("mpi", "meets over MPI", ("mpiexec",)),
                Strategy("meets", "meets by itself", ("local", "ssh")),
                Strategy("alone", "meets nobody", ("local",)),
            )
        )
