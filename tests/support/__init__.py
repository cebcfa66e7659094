"""What tests share; it runs inside every framework's environment, with the checkout on PYTHONPATH.

`trainers` makes setups and started trainers, `networks` small graphs, `proofs` oracles and what is asserted of a
proof, `processes` starts real ranks, and `rank` is the main of such a rank. `data` makes data sets, `errors` expects an
error by its class and values, and `started` looks for processes.

Oldest Python: 3.6.
"""
