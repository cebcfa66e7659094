"""GPT: decoders that predict the next token at every position, in GPT-2's form (Radford 2019).

Choices where frameworks differ: each norm comes before its branch, with eps 1e-5; GELU by tanh; learned positions, a
table whose first rows serve a shorter context; the head is tied to the embedding and has no bias, all other layers have
one; no dropout; weight decay spares biases and gains. Weights from N(0, 0.02), biases 0; GPT-2 shrinks the last layer
of each branch by sqrt(2 x blocks), which this does not.
"""

from stagebench.workloads.build import Builder, gaussian
from stagebench.workloads.graph import Graph

EPS = 1e-5


def gpt2() -> Graph:
    """Build GPT-2 small: 12 blocks of width 768 with 12 heads, context 1,024; 124,439,808 parameters."""
    return gpt("gpt2", 1024, 50257, 768, 12, 12)


def gpt_char() -> Graph:
    """Build a small one over bytes: 4 blocks of width 128 with 4 heads, context 64; 834,304 parameters."""
    return gpt("gpt_char", 64, 256, 128, 4, 4)


def gpt(name: str, context: int, vocabulary: int, width: int, heads: int, blocks: int, tied: bool = True) -> Graph:
    """Build a decoder for `context` tokens, each below `vocabulary`; its head may have a weight of its own."""
    b = Builder(name, (context,), vocabulary, decay="matrices")
    add = b.graph.add
    x = add("positions", "positions", (add("embedding", "embedding", ("input",), vocabulary=vocabulary, out=width),))
    for number in range(1, blocks + 1):
        x = b.block(f"block{number}", x, width, heads, EPS, causal=True)
    x = add("norm", "layer_norm", (x,), eps=EPS)
    if tied:
        b.head(add("head", "tied", (x,), to="embedding", out=vocabulary))
    else:
        b.head(add("head", "dense", (x,), out=vocabulary, bias=False, init=gaussian(0.02)))
    return b.graph
