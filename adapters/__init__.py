"""The adapters that come with stagebench, a package each: `plugin.py` for the controller, all else a worker half.

Oldest Python of the worker halves: 3.6, as of `stagebench.suite.worker`; of jax's 3.11, JAX's own.
"""
