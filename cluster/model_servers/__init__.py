"""The model servers that come with stagebench: `plugin.py` for the controller, and the program of each server.

A program is run by the Python of its server's own environment.
"""
