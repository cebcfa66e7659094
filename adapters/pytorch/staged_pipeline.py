"""A pipeline's forward and backward, one after the other, and what each waits for its neighbours.

torch's schedules do not stop between them. GPipe's order is the one that does: it idles as long as 1F1B's.

Oldest Python: 3.6.
"""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

from adapters.pytorch.parts import Neighbours, Part
from adapters.pytorch.whole import pieces_of


class Staged:
    """One rank's part of the pieces' ways through the network and back."""

    def __init__(self, part: Part, neighbours: Neighbours, count: int, loss_of: Callable[..., torch.Tensor]) -> None:
        """`count` pieces; `loss_of` takes the heads and the labels of one."""
        self._part, self._neighbours, self._count, self._loss_of = part, neighbours, count, loss_of
        self._crossed: List[Tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]] = []
        self._answers: List[torch.Tensor] = []
        self._losses: List[torch.Tensor] = []
        self.loss: Any = None  # on the last rank
        self.waited: Dict[str, float] = {}

    def forward(self, batch: Any) -> None:
        """Every piece through this part."""
        self._crossed, self._losses, self._answers, self._neighbours.waited = [], [], [], 0.0
        for images, labels in pieces_of(batch, self._count):
            entering = self._entering(images, len(labels), learning=True)
            leaving = self._part(*entering)
            self._crossed.append((entering, leaving))
            if self._neighbours.after is None:
                self._losses.append(self._loss_of(leaving, labels) / self._count)
                self._answers.append(leaving[-1].detach())
            else:
                self._neighbours.send(self._neighbours.after, leaving)
        self._neighbours.settle()
        self.loss = torch.stack([loss.detach() for loss in self._losses]).sum() if self._losses else None
        self.waited = {"forward": self._neighbours.waited}

    def backward(self) -> None:
        """Every piece back; autograd adds up their gradients."""
        self._neighbours.waited = 0.0
        for index, (entering, leaving) in enumerate(self._crossed):
            if self._losses:
                self._losses[index].backward()
            else:
                torch.autograd.backward(leaving, self._neighbours.leaving(len(leaving[0])))
            if self._neighbours.before is not None:
                self._neighbours.send(self._neighbours.before, [value.grad for value in entering])
        self._neighbours.settle()
        self._crossed, self._losses = [], []
        self.waited["backward"] = self._neighbours.waited

    def passed(self, images: Any, samples: int) -> Sequence[torch.Tensor]:
        """One batch through this part, sent on; returns what left."""
        leaving = self._part(*self._entering(images, samples, learning=False))
        if self._neighbours.after is not None:
            self._neighbours.send(self._neighbours.after, leaving)
            self._neighbours.settle()
        return leaving

    def logits(self) -> torch.Tensor:
        """Of the last head, the pieces' one after the other; on the last rank."""
        return torch.cat(self._answers)

    def _entering(self, images: Any, samples: int, learning: bool) -> List[torch.Tensor]:
        if self._neighbours.before is None:
            return [images]
        return [value.requires_grad_(learning) for value in self._neighbours.entering(samples)]
