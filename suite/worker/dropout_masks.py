"""The seed of dropout's masks, in every adapter alike.

Standard library only.
"""

import hashlib


def dropout_seed(seed: int, device: int, layer: str = "") -> int:
    """A seed for one device's masks, below 2**31: every framework takes it.

    `seed` is the setup's, `device` the device's number over all ranks (`rank * devices + index`): each has masks
    of its own, the same again after every `build`. `layer` is named where the framework wants a seed for each.
    A framework whose generator has no state takes the step's number beside it.
    """
    words = "%d/%d/%s" % (seed, device, layer)
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big") >> 1
