"""Layer graphs and data sets: what is trained, free of any framework.

Oldest Python: 3.6; nothing but the standard library and NumPy.
"""
