"""The half of stagebench that runs inside a framework's own interpreter.

Oldest Python: 3.6. Nothing but the standard library, NumPy and, in an adapter's worker
half (all of its folder but `plugin.py`), the framework itself. The controller writes this
package, `workloads` and one adapter into a bundle and starts `python -m stagebench.suite.worker JOB`.
"""
