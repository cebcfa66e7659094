"""The half of stagebench that runs inside a framework's own interpreter.

Oldest Python: 3.6. It needs the standard library and NumPy; an adapter's files besides
`plugin.py` import the framework itself. The controller writes this package,
`workloads` and one adapter into a bundle and starts `python -m suite.worker JOB`.
"""
