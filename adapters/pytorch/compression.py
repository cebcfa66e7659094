"""Gradients made smaller before they are sent: torch's own communication hooks.

Oldest Python: 3.6.
"""

from typing import Any, Tuple

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

WORDS = {
    "none": "none",
    "fp16": "fp16_compress_hook",
    "bf16": "bf16_compress_hook",
    "powersgd": "powerSGD_hook of rank 1 with error feedback, after two steps without it",
}


class Compression:
    """One of torch's hooks, with a state of its own for each exchange that uses it."""

    def __init__(self, name: str, transport: str) -> None:
        """`transport` is the group's back end."""
        self._name, self._waits = name, name == "powersgd" and transport == "gloo"
        self.lossy = name != "none"
        self.words = WORDS[name] + ", bucket after bucket" * self._waits

    def register(self, ddp: Any) -> None:
        """Have a DistributedDataParallel send its buckets so."""
        if self.lossy:
            ddp.register_comm_hook(*self.hook())

    def hook(self) -> Tuple[Any, Any]:
        """(state, hook), the state a new one."""
        if self._name == "powersgd":
            # Two steps are the fewest that its error feedback and warm start allow; torch's own default is 1000.
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
            return state, waiting if self._waits else powerSGD_hook.powerSGD_hook
        return None, getattr(default_hooks, self._name + "_compress_hook")


def waiting(state: Any, bucket: Any) -> Any:
    """PowerSGD over gloo: one bucket after the other.

    A bucket takes three exchanges, two of them asked for in call-backs. gloo pairs exchanges by
    the order in which each rank asks, and its few threads would all wait in call-backs.
    """
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


# DDP looks at the hints of what it is given; they name a class that cannot be imported everywhere.
waiting.__annotations__.clear()
