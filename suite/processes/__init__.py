"""Finding interpreters; starting, watching and ending process trees; evidence of how a process died."""
