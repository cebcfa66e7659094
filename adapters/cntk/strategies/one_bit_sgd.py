"""1-bit SGD: gradients quantised to one bit, the error carried over to the next step.

F. Seide, H. Fu, J. Droppo, G. Li, D. Yu, "1-Bit Stochastic Gradient Descent and its Application to
Data-Parallel Distributed Training of Speech DNNs", Interspeech 2014.
"""

from typing import Any, Optional

from adapters.cntk.exchange import ExchangeInUpdate


class OneBitSGD(ExchangeInUpdate):
    """CNTK's data-parallel learner with one bit."""

    def distributed_learner(self, local: Any) -> Any:
        """Return the learner, which keeps the quantisation's error."""
        return self.data_parallel_learner(local, bits=1)

    def gradient_bytes(self) -> Optional[int]:
        return -(-self.parameter_count() // 8) if super().gradient_bytes() else None
