"""The updates that others made while an asynchronous worker computed."""

from suite.worker.staleness import Staleness


def test_it_is_what_others_did_between_pull_and_push():
    staleness = Staleness(updates=7)
    staleness.begin()
    for updates in (8, 11, 12):  # alone, two others in between, alone
        staleness.exchanged(updates)
    assert staleness.notes() == {"staleness": {"mean": 2 / 3.0, "max": 2, "steps": 3}}


def test_it_begins_afresh_and_what_went_before_is_not_counted():
    staleness = Staleness()
    staleness.exchanged(5)
    assert staleness.notes() == {}
    staleness.begin()
    assert staleness.notes() == {}
    staleness.exchanged(6)
    assert staleness.notes() == {"staleness": {"mean": 0.0, "max": 0, "steps": 1}}
    staleness = Staleness()
    staleness.begin()
    staleness.missed(3)
    staleness.begin()
    staleness.missed(1)
    assert staleness.notes() == {"staleness": {"mean": 1.0, "max": 1, "steps": 1}}
