"""Texts: raw files of tokens, which networks with a vocabulary learn from; a text that cannot train one is refused.

A token is a byte, or in a file whose name ends in `.u16` a little-endian number of 16 bits.
"""

import hashlib
import os

import numpy as np

WIDE = ".u16"


def loaded(path: str) -> np.ndarray:
    """Return all tokens, uint8 or uint16; OSError or ValueError names the file and the problem."""
    if path.endswith(WIDE) and os.path.getsize(path) % 2:
        raise ValueError(
            f"{path} has {os.path.getsize(path)} bytes, an odd number, and tokens of two bytes by its name ({WIDE}); "
            "write it again, or rename it if its tokens are bytes"
        )
    tokens = np.fromfile(path, np.dtype("<u2") if path.endswith(WIDE) else np.uint8)
    if not tokens.size:
        raise ValueError(f"{path} is empty; name a text")
    return tokens


def digest(path: str) -> str:
    """Return the beginning of the SHA-256 of a text's bytes: 16 hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()[:16]


def windows(tokens: int, positions: int) -> int:
    """Return the samples of a text: each reads `positions` tokens of its own, the last one's label is one more."""
    return (tokens - 1) // positions


def refusal(path: str, tokens: np.ndarray, positions: int, vocabulary: int) -> str:
    """Return why a network that reads `positions` tokens below `vocabulary` cannot learn a text; "" if it can."""
    if len(tokens) <= positions:
        return (
            f"{path} has {len(tokens)} tokens, and one sample takes {positions + 1}: {positions} and the one that "
            "follows; name a longer text"
        )
    place = int((tokens >= vocabulary).argmax())
    if tokens[place] >= vocabulary:
        return (
            f"{path} has the token {tokens[place]} at place {place} (from 0), and the network takes those below "
            f"{vocabulary}; name a network with a larger vocabulary, or another text"
        )
    if tokens.min() == tokens.max():
        return f"{path} has the token {tokens[0]} at every place, which teaches nothing; name another text"
    return ""
