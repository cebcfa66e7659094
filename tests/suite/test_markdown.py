"""Whatever a label, a path or a reason holds, Markdown shows it as text."""

from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt  # rich brings it
from markdown_it.token import Token

from stagebench.reports.exports.write import write
from stagebench.suite.text import markdown_code, markdown_table, markdown_text
from tests.reports.made_run import MadeRun, case_of

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "[click](https://evil.example)",
    "![](https://evil.example/pixel.png)",
    "<https://evil.example>",
    "a | b || c |",
    "back\\slash \\| and \\",
    "`code` ``more`` `",
    "**bold** _it_ ~~gone~~",
    "&lt;b&gt; &copy;",
    "# $\\alpha$ <!-- x",
)
TEXT = {"strong_open", "em_open", "s_open", "heading_open", "fence"}
MARKUP = {"html_inline", "html_block", "link_open", "image", *TEXT}


def inline(source: str) -> Iterator[Token]:
    for block in READER.parse(source):
        yield from block.children if block.children is not None else [block]


def shown(source: str) -> str:
    return "".join(token.content for token in inline(source))


@pytest.mark.parametrize("given", HOSTILE)
def test_it_reads_as_it_was_given(given):
    for source in (markdown_text(given), markdown_code(given)):
        assert shown(source) == given
        assert not MARKUP & {token.type for token in inline(source)}
    head, rule, line = markdown_table(["one", "two", "three"], [[given, "x", given]])
    cells = [block.content for block in READER.parse("\n".join((head, rule, line))) if block.type == "inline"]
    assert [shown(cell) for cell in cells] == ["one", "two", "three", given, "x", given]


def test_it_is_one_line_without_codes_and_homes_in_a_fence_longer_than_what_it_holds():
    for line in (markdown_text, markdown_code):
        assert line("a\n\n# b\u2028c\x1b]0;x\x07 /home/ada/x").strip("`").replace("\\", "") == "a  # b c ~/x"
    assert markdown_code("results/a_b") == "`results/a_b`"
    assert markdown_code("a``b`c") == "``` a``b`c ```"


@pytest.mark.parametrize("given", HOSTILE)
def test_a_comparison_and_an_export_show_hostile_names_as_text(given, stagebench, tmp_path):
    name = given.replace("/", "-")  # of a folder; a case's label has the last part of its data
    runs = [MadeRun(tmp_path / f"{word} {name}") for word in ("before", "after")]
    for run in runs:
        for knob in (given, "plain"):
            run.proven(case_of(data=f"/data/{name}", knobs={"note": knob}))
    bench = runs[1].folder.hosts()["bench"]
    runs[1].folder.write_host(bench.but(machine=bench.machine._replace(cpu=f"Intel {given}")))
    compared = stagebench("compare", *(str(run.folder.path) for run in runs), "--markdown").out
    exported = write(runs[0].folder, "markdown", tmp_path).read_text()
    for source, words in ((compared, name), (compared, f"Intel {given}"), (exported, given)):
        assert not (MARKUP - {"strong_open"}) & {token.type for token in inline(source)}
        assert words in shown(source)
    assert sum(token.type == "strong_open" for token in inline(compared)) == 1  # the verdict
