"""The layers: each with an explicit forward and an explicit backward, one small class a kind.

Oldest Python: 3.6.
"""
