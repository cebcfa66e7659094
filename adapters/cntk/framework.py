"""CNTK, imported without the warnings that it greets every system with.

It is retired: 2.7 (2019) knows Ubuntu 16.04 only, and looks for the libraries of GPUs, which
nothing here uses, and of its image reader, whose absence is reported where it is needed (`libraries`).
Whatever else it warns of stays a warning.
"""

import warnings

GREETINGS = ("Unsupported Linux distribution", "\n\n#+ Missing optional dependency")

with warnings.catch_warnings():
    for greeting in GREETINGS:
        warnings.filterwarnings("ignore", greeting, UserWarning)
    # Its own sources, compiled anew on a fresh installation: escapes in docstrings, "is" with literals.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import cntk

__all__ = ["cntk"]
