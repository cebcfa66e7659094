"""A trace of arrivals: what is read, and what is refused by file, line and value."""

import pytest

from stagebench.suite.data.trace import arrival_times, with_digest


@pytest.fixture
def trace(tmp_path):
    def write(text):
        (tmp_path / "trace.txt").write_text(text)
        arrival_times.cache_clear()
        return str(tmp_path / "trace.txt")

    return write


def test_arrivals_count_from_the_first(trace):
    named = with_digest(trace("# by hand\n2\n2  # together\n\n3.5\n"))
    assert arrival_times(named) == (0.0, 0.0, 1.5)
    assert with_digest(named) == named


def test_another_trace_of_that_name_is_refused(trace):
    named = with_digest(trace("1\n2\n"))
    trace("1\n3\n")
    with pytest.raises(ValueError, match=r"trace\.txt .*[0-9a-f]{12}.*[0-9a-f]{12}"):
        arrival_times(named)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\n3\n2\n", r"trace.txt:3: the trace goes back in time, from 3 to 2 s; sort its lines"),
        ("1\nsoon\n", r"trace.txt:2: 'soon' is no number of seconds from 0 on; write one a line"),
        ("-1\n2\n", r"trace.txt:1: '-1' is no number of seconds"),
        ("nan\n2\n", r"trace.txt:1: 'nan' is no number of seconds"),
        ("", r"trace.txt has 0 queries within 0 s; write 2 to 1,000,000, not all at one time, within 240 s"),
        ("1\n242\n", r"trace.txt has 2 queries within 241 s"),
        ("1\n1\n", r"trace.txt has 2 queries within 0 s"),
    ],
)
def test_what_is_no_trace_is_refused(trace, text, words):
    with pytest.raises(ValueError, match=words):
        with_digest(trace(text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.txt .* poisson, bursts"):
        with_digest(str(tmp_path / "none.txt"))
