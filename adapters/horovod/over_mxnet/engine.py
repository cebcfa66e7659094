"""Horovod over MXNet, loaded so that Pillow goes on decoding.

Horovod makes the symbols of all that it is linked against global, MXNet's own copy of libjpeg among
them. What is loaded later takes those for its own: Pillow then finds images broken. It comes first.
"""

import PIL.Image  # noqa: F401 - it binds its decoders

# isort: split
import horovod.mxnet as hvd

__all__ = ["hvd"]
