"""Results of other programs: what they printed, read into tables of ours, and marked as foreign for good."""
