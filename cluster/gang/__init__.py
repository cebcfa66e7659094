"""Spark's barrier mode and Ray's placement groups: engines that start a task on every node at once, or none at all.

The task stands for its node: it starts the ranks there, watches them, and ends them when it ends itself.
"""
