import io
import re
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from stagebench.suite.errors import RequestError
from stagebench.suite.plan import load, resolve
from stagebench.suite.plan.overrides import overrides_from
from stagebench.suite.plan.problems import Lines
from stagebench.suite.plan.read import LARGEST
from stagebench.suite.worker.machine import cores
from tests.support.errors import raising

GOOD = """\
name = "x"
[defaults]
threads = 1
[sampling]
steps = 50
[[cases]]
adapter = "alpha"
strategy = "single"
workload = "mnist_small"
batch = 8
"""


def picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (20, 20)).save(stream, "PNG")
    return stream.getvalue()


def refused(toys: SimpleNamespace, path: Path) -> str:
    with pytest.raises(RequestError) as error:
        resolve(load(path), toys.adapters, toys.launchers, toys.workloads)
    assert error.value.exit_code == 2
    return str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "value", "remedy"),
    [
        ('"alpha"', '"alhpa"', 7, "unknown adapter 'alhpa'", "did you mean 'alpha'? known: alpha, beta"),
        ('"alpha"', '["alpha",\n "gamma"]', 8, "unknown adapter 'gamma'", "known: alpha, beta"),
        ('"single"', '"ring"', 8, "unknown strategy 'ring'", "beta has it, this block's adapters have ddp, free,"),
        ('"mnist_small"', '"mnist_smal"', 9, "unknown workload 'mnist_smal'", "did you mean 'mnist_small'?"),
        ('"mnist_small"', '"gpt_char@65"', 9, "'gpt_char@65'", "more than the 64 positions of its table; write gpt"),
        ('"mnist_small"', '"mnist_small@8"', 9, "mnist_small reads no tokens", "write mnist_small"),
        ('"mnist_small"', '"gpt_char@0"', 9, "'0' is no number of tokens", "write gpt_char@N, N from 1 to 64"),
        ('"mnist_small"', '"gpt_chr@9"', 9, "unknown workload 'gpt_chr@9'", "did you mean 'gpt_char'?"),
        ("batch = 8", 'launcher = "lokal"', 10, "unknown launcher 'lokal'", "did you mean 'local'? known: auto, local"),
        ("batch = 8", 'data = "real"\npasses = ["train", "native"]', 11, "the pass 'train' learns", "in a block"),
        ("batch = 8", 'passes = ["train"]', 10, "the pass 'train' needs real data", "set data to 'real', a data set's"),
        ("steps = 50", "steps = 50\n[training]\nheld_out = 1.0", 7, "held_out = 1.0", "less than 1"),
        ("batch = 8", 'augment = "random"\ndata = "real"', 10, "augment = 'random' crops", "write 'centre'"),
        ("batch = 8", 'page_cache = "hot"', 10, "page_cache = 'hot'", "known: as is, cold, warm"),
        ("batch = 8", "bacth = 8", 10, "unknown key 'bacth'", "did you mean 'batch'?"),
        ('"single"', '"singel"', 8, "unknown strategy 'singel'", "did you mean 'single'? known: ddp, free"),
        ("threads = 1", 'knobs.formt = "auto"', 3, "unknown knob 'formt'", "did you mean 'format'?"),
        ("[[cases]]", "[[case]]", 6, "unknown key 'case'", "did you mean 'cases'?"),
        ("batch = 8", "batch = 0", 10, "batch = 0", "greater than or equal to 1"),
        ("batch = 8", 'batch = "8"', 10, "batch = '8'", "valid integer"),
        ("batch = 8", "ranks = 1025", 10, "ranks = 1025", "a node takes 1024 at most"),
        ("batch = 8", 'device = "gpu"', 10, "device = 'gpu'", "known: cpu, cuda"),
        ("batch = 8", "launcher = 'local'\nnodes = 2", 11, "nodes = 2", "'local' knows only this machine; use nodes"),
        ("batch = 8", 'hosts = ["a", "b"]', 10, "2 hosts for nodes = 1", "one host per node"),
        ("batch = 8", 'hosts = ["a\\ntouch x"]', 10, r"'a\ntouch x' is no host", "take letters, digits"),
        ("batch = 8", 'hosts = ["-oProxyCommand=id"]', 10, "is no host", "or an address in numbers"),
        ('"x"', f'"{"x" * 5000}"', 1, "name = 'xxxxx", "should be letters, digits"),
        ("batch = 8", "lr = -1" + "0" * 300, 10, "lr = -1000", "0…: should be greater than 0"),
        ("batch = 8", f"binding = 'cores'\nranks = {cores() + 1}", 10, f"wants {cores() + 1} cores", "lower ranks"),
        ("batch = 8", "knobs.formt = 'auto'", 10, "unknown knob 'formt' for alpha", "did you mean 'format'?"),
        ('"single"', '"ddp"\nscaling = "strong"\nranks = [2, 3]', 12, "batch = 8", "8 samples do not divide over 3 d"),
        ("batch = 8", "[cases.knobs]\nformat = 'first'", 11, "knob format", "is one of 'auto', 'last', not 'first'"),
        ("batch = 8", "knobs = 3", 10, "knobs", "valid dictionary"),
        ("batch = 8", "knobs.bucket = ['x', 1]", 10, "knob bucket", "wants int, not 'x'"),
        ("batch = 8", 'data = "no/such/folder"', 10, "data = 'no/such/folder'", "no such file or folder"),
        ("threads = 1", "treads = 1", 3, "unknown key 'treads'", "did you mean 'threads'?"),
        ("steps = 50", "steps = 5", 4, "steps = 5 (full: 50)", "add quick = true"),
        ('name = "x"', 'nmae = "x"', 1, "unknown key 'nmae'", "did you mean 'name'?"),
        ('name = "x"', 'title = "x"', 1, "'name' is missing", "write name = ..."),
        ("batch = 8", 'memory_limit = "8 X"', 10, "memory_limit = '8 X'", "a number of bytes, or one with a unit"),
        ('name = "x"', 'name = "a/b"', 1, "name = 'a/b'", "should be letters, digits, '.', '_' and '-'"),
        ('adapter = "alpha"\n', "", 6, "names no adapter", "known: alpha, beta"),
        ('strategy = "single"\n', "", 6, "names no strategy", "known: ddp, free, mirror, pipe, single"),
        ("batch = 8", 'nodes = 1_000_000\nranks = 1024\nlauncher = "many"', 10, "1 to 1,000,000,000 are", "take fewer"),
        ("[[cases]]", "[cases]", 6, "[cases] is one table", "write [[cases]]"),
        ("[defaults]\nthreads = 1", "defaults = 3", 2, "defaults is a table", "write [defaults]"),
    ],
)
def test_a_slip_is_told_with_line_value_and_remedy(toys, plan_file, old, new, line, value, remedy):
    assert old in GOOD
    told = refused(toys, plan_file(GOOD.replace(old, new, 1)))
    (problem,) = [each for each in told.splitlines() if value in each]
    assert f"plan.toml:{line}: " in problem
    assert remedy in problem


def test_a_file_that_is_missing_no_text_or_broken_is_refused(tmp_path, plan_file, monkeypatch):
    with pytest.raises(RequestError, match="did you mean 'quick'"):
        load("quik")
    with pytest.raises(RequestError, match="ready-made"):
        load(tmp_path)
    with raising(RequestError, "plan.toml", 2):
        load(plan_file('name = "x"\nbatch = = 3\n'))
    with raising(RequestError, "plan.toml", 3):  # found out at the end of the file
        load(plan_file('name = "x"\nbatch = [\n3'))
    path = tmp_path / "plan.toml"
    path.write_bytes(b"name = '\xff'")
    with raising(RequestError, path):
        load(path)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "Denied")))
    with raising(RequestError, path, "Denied"):
        load(path)
    monkeypatch.undo()
    with path.open("ab") as stream:
        stream.truncate(LARGEST + 1)
    with raising(RequestError, path, LARGEST + 1, LARGEST):
        load(path)


def test_all_problems_come_in_one_message_by_line_and_many_are_counted(toys, plan_file):
    text = GOOD.replace('"alpha"', '"alhpa"').replace("batch = 8", "batch = 0\nspeed = 3")
    told = refused(toys, plan_file(text + GOOD[GOOD.index("[[cases]]") :].replace("mnist_small", "mnist")))
    lines = [int(line.split(":")[1]) for line in told.splitlines()[1:]]
    assert "the plan has 4 problems; nothing was started" in told
    assert lines == [7, 10, 11, 15]
    told = refused(toys, plan_file(GOOD + f"readers = {list(range(-3000, 0))}\n"))
    assert "the plan has 3,000 problems" in told
    assert told.endswith("and 2,950 more")
    assert len(told.splitlines()) < 60


@pytest.mark.parametrize(
    ("data", "content", "words"),
    [
        ("photos", {"cats/broken.jpg": b"not an image"}, "cannot read the image {tmp_path}/photos/cats/broken.jpg"),
        ("photos", {}, "{tmp_path}/photos has no class folders"),
        ("photos", {"cats/one.png": picture()}, "{tmp_path}/photos has one class, cats"),
        ("mine.npz", b"PK\x03\x04 but then nothing", "'mine.npz' cannot be read"),
    ],
)
def test_data_that_cannot_train_are_named(toys, plan_file, tmp_path, data, content, words):
    files = {f"{data}/{name}": each for name, each in content.items()} if data == "photos" else {data: content}
    (tmp_path / "photos").mkdir()
    for name, each in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(each)
    workload = "alexnet" if data == "photos" else "mnist_small"
    told = refused(toys, plan_file(GOOD.replace("batch = 8", f'data = "{data}"').replace("mnist_small", workload)))
    assert "plan.toml:10: " in told
    assert words.format(tmp_path=tmp_path) in told


@pytest.mark.parametrize("slip", ["readers = -1", 'workload = "mnist"'])
def test_a_slip_in_the_defaults_is_told_once_however_many_blocks_have_it(toys, plan_file, slip):
    block = '[[cases]]\nadapter = "alpha"\nstrategy = "single"\n'
    block += "" if "workload" in slip else 'workload = "mnist_small"\n'
    told = refused(toys, plan_file(f'name = "x"\n[defaults]\n{slip}\n{block}{block}'))
    assert told.startswith("the plan has one problem;")
    assert slip.partition(" = ")[0] in told
    assert len(told.splitlines()) == 2


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("[" * 5000 + "]" * 5000, "its lists or tables are nested too deeply"),
        ("[" * 40 + "]" * 40, "its lists or tables are nested too deeply"),
        ("{a=" * 300 + "1" + "}" * 300, "its lists or tables are nested too deeply"),
        ("1979-05-27", "1979-05-27 is a date or a time, of which a plan has none; write it in quotes"),
        ("[[07:32:00]]", "07:32:00 is a date or a time"),
        ("0x" + "f" * 5000, "it has a whole number of more than a thousand digits; write a smaller one"),
        ("1" * 5000, "it has a whole number of more than a thousand digits"),
    ],
    ids=lambda word: word[:12],
)
def test_what_toml_has_and_a_plan_has_not_is_refused(toys, plan_file, value, problem):
    assert f"plan.toml: {problem}" in refused(toys, plan_file(GOOD + f"knobs.bucket = {value}\n"))


NETWORKS = [f"net{number}" for number in range(100_000)]


@pytest.mark.parametrize(
    "blocks",
    [
        '[[cases]]\nadapter = "alpha"\n' * 100_000,
        f'[[cases]]\nadapter = "alpha"\nworkload = {NETWORKS}\nbatch = {{ net1 = 3 }}\n',
        f'[defaults]\nworkload = {NETWORKS}\n[[cases]]\nadapter = "alpha"\nbatch = {{ net1 = 3 }}\n',
    ],
    ids=["blocks", "a batch for each network", "networks of the defaults"],
)
def test_more_blocks_than_cases_are_allowed_are_refused_before_they_are_read(toys, plan_file, blocks):
    """Each of them takes half a millisecond: a hundred thousand would take a minute."""
    many = 'name = "x"\n' + blocks
    begin = time.process_time()
    told = refused(toys, plan_file(many))
    assert time.process_time() - begin < 20
    assert "plan.toml: the plan has 100,000 [[cases]] blocks of a case or more each, and it allows 10,000 c" in told
    assert "allow more: most_cases = 100000 at the plan's top, or --set most_cases=100000" in told


def test_a_sweep_beyond_the_limit_says_how_many_and_the_limit_can_be_raised(toys, plan_file):
    values = list(range(1, 1001))
    plan = plan_file(GOOD + f"seed = {values}\ntime_limit = {[float(each) for each in values]}\n")
    told = refused(toys, plan)
    assert re.search(r"plan.toml: the plan spells 1,000,000 cases, which take \d,\d+ days at least, .* 10,000; ", told)
    assert "--set most_cases=1000000" in told
    few = plan_file("most_cases = 1\n" + GOOD + "seed = [1, 2]\n")
    assert "the plan spells 2 cases" in refused(toys, few)
    more, told = load(few, asked=overrides_from(["most_cases=2"])), []
    for one in resolve(more, toys.adapters, toys.launchers, toys.workloads, told=lambda *size: told.append(size)):
        assert one.case.seed in (1, 2)
    assert [cases for cases, _ in told] == [2]
    assert told[0][1] > 0
    assert "most_cases = 0" in refused(toys, plan_file("most_cases = 0\n" + GOOD))


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
