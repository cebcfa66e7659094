"""What adapters whose ranks meet by Open MPI ask of it."""

OPEN_MPI = "Open MPI"  # for `Strategy.mpi` and `Knob.mpi`

# Waiting ranks spin. Where anything else wants their core, the others wait for their time slice to end: 57 ms a step
# of mnist_small became 10 ms on a machine shared with other jobs.
GIVE_WAY = {"OMPI_MCA_mpi_yield_when_idle": "1"}
