"""Multiply-accumulates, counted on the operations that JAX really traced.

Oldest Python: 3.11, JAX's own.
"""

from typing import Any, Iterator

from workloads.graph import size


def macs(jaxpr: Any) -> int:
    """Of every convolution and every product of matrices in a jaxpr, wherever in it."""
    total = 0
    for equation in jaxpr.eqns:
        shapes = [getattr(each.aval, "shape", ()) for each in equation.invars]
        if equation.primitive.name == "conv_general_dilated":
            # A cell of the output takes one product for each number of the kernel that leads to its channel.
            out = equation.outvars[0].aval.shape
            channels = shapes[1][equation.params["dimension_numbers"].rhs_spec[0]]
            total += size(out) * (size(shapes[1]) // channels)
        elif equation.primitive.name == "dot_general":
            contracted = equation.params["dimension_numbers"][0][0]
            total += size(equation.outvars[0].aval.shape) * size(tuple(shapes[0][axis] for axis in contracted))
        else:
            total += sum(macs(inner) for inner in inside(equation.params))
    return total


def inside(params: Any) -> Iterator[Any]:
    """The jaxprs that an equation calls."""
    for value in params.values():
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns"):
            yield inner
