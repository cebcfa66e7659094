"""The layers: each with an explicit forward and an explicit backward, one small class a kind."""
