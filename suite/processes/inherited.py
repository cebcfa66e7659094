"""What a program that we start may have of our own environment."""

import os

# Variables that tell one process its rank; they are somebody else's when the controller has them. Whoever started the
# controller did so by no launcher of ours: an MPI's own are known here, since its library would join that group.
FOREIGN_RANKS = (
    *("STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK", "STAGEBENCH_RANK_VARIABLES"),
    *("PMI_RANK", "PMI_SIZE", "PMI_FD"),
)
FOREIGN_PREFIXES = ("PYTHON", "OMPI_COMM_WORLD_", "PMIX_")


def inherited() -> dict[str, str]:
    """This process's variables without those meant for it alone.

    PYTHONPATH, PYTHONHOME and their like belong to the controller's interpreter and break
    another one's; a rank number belongs to whatever started the controller.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in FOREIGN_RANKS and not name.startswith(FOREIGN_PREFIXES)
    }
