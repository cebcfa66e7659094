"""Sessions: cases measured one process group after the other into a run folder, resumed where they were stopped."""
