"""One rank of a real group; tests/support/rank.py says how it is called, and what it leaves."""

from engine import trainer

from tests.support import rank

if __name__ == "__main__":
    rank.main(trainer, {"prove": rank.prove, "exchange": rank.exchange}, strategy="allreduce", tuning="tuned")
