"""A program beside the ranks: it waits to be ended. Oldest Python: 3.6."""

import time

while True:
    time.sleep(1.0)
