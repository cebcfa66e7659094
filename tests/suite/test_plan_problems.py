import tomllib

import pytest

from suite.plan.problems import Lines

TEXT = '''\
# a comment with = and [brackets]
name = "x"
"quoted key" = """
several
lines"""
after = 1

[defaults]
threads = 1   # [ not an array
a.b.c = 2

[[cases]]
batch = [
  1,
  2,  # two
  [3,
   4],
]
knobs = { one = 1, two = [5, 6] }
last = 'x'

[[cases]]
batch = 1979-05-27
[cases.knobs]
three = "a # b"
[[cases.inner]]
deep = -1.5e3
[[cases.inner]]
deep = true
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("quoted key",), 3),
        (("after",), 6),
        (("defaults",), 8),
        (("defaults", "threads"), 9),
        (("defaults", "a", "b", "c"), 10),
        (("cases",), 12),
        (("cases", 0), 12),
        (("cases", 0, "batch"), 13),
        (("cases", 0, "batch", 1), 15),
        (("cases", 0, "batch", 2, 1), 17),
        (("cases", 0, "knobs", "two", 1), 19),
        (("cases", 0, "last"), 20),
        (("cases", 1), 22),
        (("cases", 1, "batch"), 23),
        (("cases", 1, "knobs"), 24),
        (("cases", 1, "knobs", "three"), 25),
        (("cases", 1, "inner", 0, "deep"), 27),
        (("cases", 1, "inner", 1, "deep"), 29),
        (("cases", 1, "not there"), 22),
        (("nowhere",), 1),
    ],
)
def test_every_key_has_its_line(path, line):
    tomllib.loads(TEXT)  # the text must be TOML, or the test means nothing
    assert Lines(TEXT).line(path) == line
