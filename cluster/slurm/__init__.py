"""Slurm: a placement becomes a batch script that a person can read, and a job that is followed to its end."""
