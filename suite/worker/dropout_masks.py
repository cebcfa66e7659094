"""The seed of dropout's masks, the same in every adapter.

Standard library only.
"""

import hashlib


def dropout_seed(seed: int, device: int, layer: str = "") -> int:
    """Return a seed for one device's masks, below 2**31: every framework takes it.

    `seed` is the setup's, `device` the device's number over all ranks (`rank * devices + index`): each device has masks
    of its own, the same again after every `build`. `layer` is named if the framework needs a seed for each layer. A
    framework whose generator has no state adds the step's number.
    """
    words = "%d/%d/%s" % (seed, device, layer)
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big") >> 1
