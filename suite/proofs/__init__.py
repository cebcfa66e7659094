"""The gate: which proofs there are to make, how they are made, how they are judged."""
