"""Plans: a TOML file that spells a set of cases, checked whole before anything starts.

    name = "mine"
    title = "AlexNet on one and two ranks"

    [defaults]                  # any key of a [[cases]] block
    threads = 1

    [sampling]                  # how long to measure; see stagebench.suite.contracts.case.Sampling
    quick = true                # needed by anything shorter than the full measurement

    [[cases]]                   # every list is swept; a block is the product of its lists
    adapter = ["pytorch", "caffempi"]
    strategy = "single"
    workload = "alexnet"
    ranks = [1, 2]              # per node
    data = "synthetic"          # or "real" (the workload's own set), a set's name, a path relative to the plan
    [cases.knobs]               # given to the adapters that have them
    memory_format = ["contiguous", "channels_last"]

    [scale.small]               # `stagebench run PLAN --scale small`; see stagebench.suite.plan.model.Scale
    divide_batch = 4
    keep = { ranks = 1 }        # of every block's values only these

    [overrides]                 # what `--set` has changed; see stagebench.suite.plan.overrides
    batch = [4]

`hosts` and `passes` are lists by nature and are not swept. `model` defines the keys of a plan, `read` turns a text into
checked blocks, `resolve` makes cases of them, `checks` refuses cases, and `text` writes cases as a plan again.
"""

from stagebench.suite.plan.read import Plan, load, parse, ready_made
from stagebench.suite.plan.resolve import Resolved, resolve

__all__ = ["Plan", "Resolved", "load", "parse", "ready_made", "resolve"]
