"""A network's tensors: CNTK's own, known by canonical name and layout."""

from typing import Any, Dict, NamedTuple, Tuple

import numpy as np

from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it


class Held(NamedTuple):
    """One tensor and how it differs from the canonical one."""

    tensor: Any  # cntk.Parameter or cntk.Constant
    shape: Tuple[int, ...]  # canonical
    transposed: bool

    def canonical(self, values: np.ndarray) -> np.ndarray:
        """A copy in the canonical layout of values in CNTK's."""
        turned = values.T if self.transposed else values
        return np.array(turned, order="C").reshape(self.shape)


class Tensors:
    """Makes parameters and running statistics and remembers them."""

    def __init__(self, weights: Dict[str, np.ndarray], dtype: Any) -> None:
        """`weights` in canonical names and layouts; all tensors have the type `dtype`."""
        self._weights, self.dtype = weights, np.dtype(dtype)
        self.parameters: Dict[str, Held] = {}
        self.statistics: Dict[str, Held] = {}

    def parameter(self, name: str, shape: Tuple[int, ...], transposed: bool = False) -> Any:
        """A trainable tensor of the canonical values, in `shape`; `transposed` turns it for CNTK. Made once."""
        if name in self.parameters:
            return self.parameters[name].tensor
        canonical = self._weights[name]
        values = canonical.reshape(shape)
        init = np.ascontiguousarray(values.T if transposed else values, dtype=self.dtype)
        made = C.Parameter(init.shape, init=init, dtype=self.dtype, name=name)
        self.parameters[name] = Held(made, canonical.shape, transposed)
        return made

    def running(self, name: str, values: np.ndarray) -> Any:
        if name in self.statistics:
            return self.statistics[name].tensor
        made = self.constant(values, name)
        self.statistics[name] = Held(made, values.shape, False)
        return made

    def constant(self, values: Any, name: str = "") -> Any:
        """Fixed values. The type is passed: CNTK takes float32 even for a float64 array, and uses a copy then."""
        return C.Constant(np.array(values, dtype=self.dtype), dtype=self.dtype, name=name)

    def values(self) -> Dict[str, np.ndarray]:
        everything = dict(self.parameters, **self.statistics)
        return {name: held.canonical(held.tensor.value) for name, held in everything.items()}
