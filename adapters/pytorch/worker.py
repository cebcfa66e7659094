"""PyTorch's trainers: a class for each way of training, in a file of its own.

Oldest Python: 3.6.
"""

import importlib
from typing import Any, Dict, Tuple

from suite.worker.contract import Setup
from suite.worker.trainer import Trainer

# strategy -> (module, class); a module is loaded when its strategy is asked for, and with it what it needs of torch.
WAYS: Dict[str, Tuple[str, str]] = {
    "single": ("whole", "Whole"),
    "dp": ("data_parallel", "DataParallelTrainer"),
    "ddp": ("ddp", "DDPTrainer"),
    "accumulate": ("accumulate", "AccumulatingTrainer"),
    "zero1": ("zero", "ZeroTrainer"),
    "fsdp": ("sharded", "ShardedTrainer"),
    "local_sgd": ("local_sgd", "LocalSGDTrainer"),
    "pipeline": ("pipeline", "PipelineTrainer"),
    "hybrid": ("hybrid", "HybridTrainer"),
    "parameter_server": ("parameter_server", "ServedTrainer"),
}


class PyTorchTrainer(Trainer):
    """Trains as its setup's strategy says: making one makes an instance of that strategy's class."""

    def __new__(cls, setup: Setup) -> Any:
        """The strategy's trainer."""
        module, name = WAYS[setup.strategy]
        return getattr(importlib.import_module("adapters.pytorch." + module), name)(setup)
