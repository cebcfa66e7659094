"""The layer kinds of transformers: over tokens, which have the shape (positions, width).

Standard library only.
"""

from typing import Dict

from stagebench.workloads.kinds import (
    ONE,
    ZERO,
    Dense,
    Layer,
    Shape,
    Values,
    count,
    flag,
    init,
    name_of_layer,
    padding,
    positive,
    weight_and_bias,
)

SMALL: Values = {"kind": "gaussian", "std": 0.02}  # Dosovitskiy 2021, Radford 2019


class OverTokens(Layer):
    """The base of the kinds whose only input is tokens."""

    takes_tokens = True

    def output_shape(self) -> Shape:
        if len(self.input_shapes[0]) != 2:
            raise ValueError(f"wants tokens (positions, width), not {self.input_shapes[0]!r}")
        return self.tokens_shape(*self.input_shapes[0])

    def tokens_shape(self, positions: int, width: int) -> Shape:
        """Return the shape of the output; ValueError when the tokens do not fit."""
        return positions, width


class Tokens(Layer, kind="tokens"):
    """Cuts an image into square patches, row by row; a token is a patch's values in C, H, W order."""

    attributes = {"patch": count()}
    takes_images = linear = True

    def output_shape(self) -> Shape:
        (channels, height, width), patch = self.input_shapes[0], self.attrs["patch"]
        if height % patch or width % patch:
            raise ValueError(f"patches of {patch} x {patch} do not divide an image of {height} x {width}")
        return (height // patch) * (width // patch), channels * patch * patch


class Embedding(Layer, kind="embedding"):
    """Looks up a learned vector for each number of the network's input."""

    attributes = {"vocabulary": count(), "out": count(), "init": init()}
    initialisers = {"weight": SMALL}
    takes_numbers = overwritable = True

    def output_shape(self) -> Shape:
        if len(self.input_shapes[0]) != 1:
            raise ValueError(f"wants the numbers of tokens (positions,), not {self.input_shapes[0]!r}")
        return self.input_shapes[0][0], self.attrs["out"]

    def parameter_shapes(self) -> Dict[str, Shape]:
        return {"weight": (self.attrs["vocabulary"], self.attrs["out"])}


class ClassToken(OverTokens, kind="class_token"):
    """Puts a learned token before the others."""

    attributes = {"init": init()}
    initialisers = {"weight": SMALL}
    overwritable = linear = True

    def tokens_shape(self, positions: int, width: int) -> Shape:
        return positions + 1, width

    def parameter_shapes(self) -> Dict[str, Shape]:
        return {"weight": (1, 1, self.input_shapes[0][1])}


class Positions(OverTokens, kind="positions"):
    """Adds a learned vector to each token, of a table of `rows`; 0: one for each token."""

    attributes = {"rows": padding(), "init": init()}
    initialisers = {"weight": SMALL}
    overwritable = linear = True

    def tokens_shape(self, positions: int, width: int) -> Shape:
        if 0 < self.attrs["rows"] < positions:
            raise ValueError(f"{positions} tokens are more than the {self.attrs['rows']} positions of its table")
        return positions, width

    def parameter_shapes(self) -> Dict[str, Shape]:
        positions, width = self.input_shapes[0]
        return {"weight": (1, self.attrs["rows"] or positions, width)}


class LayerNorm(OverTokens, kind="layer_norm"):
    """Normalises each token by its own mean and biased variance plus eps (Ba 2016)."""

    attributes = {"eps": positive(1e-5), "init": init()}
    initialisers = {"weight": ONE, "bias": ZERO}
    overwritable = True

    def parameter_shapes(self) -> Dict[str, Shape]:
        return weight_and_bias(self.input_shapes[0][1:])


class QueriesKeysValues(OverTokens, kind="qkv"):
    """y = W x + b of each token: the queries of all heads, then the keys, then the values."""

    attributes = {"bias": flag(True), "init": init()}
    initialisers = {"weight": SMALL, "bias": ZERO}
    has_weights = overwritable = True
    parts = 3  # each is judged, or a wrong query hides behind the values

    def tokens_shape(self, positions: int, width: int) -> Shape:
        return positions, 3 * width

    def parameter_shapes(self) -> Dict[str, Shape]:
        width = self.input_shapes[0][1]
        return weight_and_bias((3 * width, width), self.attrs["bias"])

    @property
    def sharpened(self) -> float:
        """Larger weights make attention uneven; from a width of 192 on, scores then deviate by 1.2, not by more."""
        return min(4.0, (3072 / self.input_shapes[0][1]) ** 0.5)

    macs = Dense.macs


class Attention(OverTokens, kind="attention"):
    """softmax(q k^T / sqrt(d)) v of each head, over the result of a `qkv` (Vaswani 2017).

    d is a head's width. A causal one gives each token only those before it, and itself; its multiply-accumulates are
    counted all the same.
    """

    attributes = {"heads": count(), "causal": flag(False)}

    def tokens_shape(self, positions: int, width: int) -> Shape:
        heads = self.attrs["heads"]
        if width % (3 * heads):
            raise ValueError(f"{heads} heads do not divide queries, keys and values of {width} numbers")
        return positions, width // 3

    @property
    def macs(self) -> int:
        positions, width = self.shape
        return 2 * positions * positions * width


class GELU(Layer, kind="gelu"):
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), the usual approximation (Hendrycks 2016)."""

    elementwise = takes_tokens = True


class Select(OverTokens, kind="select"):
    """Takes the token at one position."""

    attributes = {"position": padding()}
    linear = True

    def tokens_shape(self, positions: int, width: int) -> Shape:
        if self.attrs["position"] >= positions:
            raise ValueError(f"{positions} tokens have no position {self.attrs['position']}; the first is 0")
        return (width,)


class Mean(OverTokens, kind="mean"):
    """Takes the mean over the tokens."""

    linear = True

    def tokens_shape(self, positions: int, width: int) -> Shape:
        return (width,)


class Tied(OverTokens, kind="tied"):
    """y = W x of each token, with the weight of an earlier layer, such as an embedding (Press 2017)."""

    attributes = {"to": name_of_layer(), "out": count()}
    overwritable = True

    def tokens_shape(self, positions: int, width: int) -> Shape:
        return positions, self.attrs["out"]

    @property
    def shares(self) -> Dict[str, str]:
        return {"weight": f"{self.attrs['to']}.weight"}

    macs = Dense.macs
