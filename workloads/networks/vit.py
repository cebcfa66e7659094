"""ViT-Ti/16: a vision transformer for 224 x 224 images (Dosovitskiy 2021; the tiny size is Touvron's, 2021).

Choices where frameworks differ: each norm comes before its branch, with eps 1e-6; GELU by tanh; learned positions; the
class token's last state is what the head reads; no dropout; weight decay spares biases and gains. Weights from N(0,
0.02), biases 0. 5,717,416 parameters.
"""

from stagebench.workloads.build import Builder, gaussian
from stagebench.workloads.graph import Graph

EPS = 1e-6


def vit_ti16() -> Graph:
    """Build ViT-Ti/16: 12 blocks of width 192 with 3 heads, 1000 classes."""
    return vit("vit_ti16", (3, 224, 224), 16, 192, 3, 12, 1000)


def vit(
    name: str, images: tuple, patch: int, width: int, heads: int, blocks: int, classes: int, pool: str = "class"
) -> Graph:
    """Build a vision transformer for square patches of that many pixels; `pool`: "class", the token, or "mean"."""
    answer, attrs = {"class": ("select", {"position": 0}), "mean": ("mean", {})}[pool]
    b = Builder(name, images, classes, decay="matrices")
    x = b.dense("patches", b.graph.add("tokens", "tokens", ("input",), patch=patch), width, gaussian(0.02))
    x = b.graph.add("class_token", "class_token", (x,)) if pool == "class" else x
    x = b.graph.add("positions", "positions", (x,))
    for number in range(1, blocks + 1):
        x = b.block(f"block{number}", x, width, heads, EPS)
    x = b.graph.add("norm", "layer_norm", (x,), eps=EPS)
    b.head(b.dense("fc", b.graph.add("answer", answer, (x,), **attrs), classes, gaussian(0.02)))
    return b.graph
