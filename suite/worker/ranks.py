"""The rank of this process, by stagebench's own variables or by those of the engine that started this process."""

import os
from typing import Mapping, NamedTuple, Optional

Rank = NamedTuple("Rank", [("rank", int), ("world", int), ("local_rank", int)])

OWN = ("STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK")
NAMES = "STAGEBENCH_RANK_VARIABLES"  # "RANK,WORLD,LOCAL": an engine's own (suite.contracts.launcher.RankVariables)


def own_rank(environ: Optional[Mapping[str, str]] = None) -> Rank:
    """Return the rank that this process was started as; without any variables, it is rank 0 of 1.

    KeyError if the engine did not set the variable that is named for its rank.
    """
    environ = os.environ if environ is None else environ
    if OWN[0] not in environ and NAMES not in environ:
        return Rank(0, 1, 0)
    rank, world, local = OWN if OWN[0] in environ else environ[NAMES].split(",")
    if rank not in environ:
        raise KeyError(
            "%s names %s, which the engine did not set; correct the launcher's RankVariables" % (NAMES, rank)
        )
    number = int(environ[rank])
    return Rank(number, int(environ.get(world, "1")), int(environ.get(local, number)))
