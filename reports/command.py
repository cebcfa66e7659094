"""The commands about reports. Heavy imports wait until a command runs, so that --help is quick."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stagebench.suite.cli.output import report_next, say, show_json
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.text import counted

if TYPE_CHECKING:
    from stagebench.suite.analysis.standing import Answer, Standing


@hookimpl
def stagebench_commands(app: typer.Typer) -> None:
    """Add `report`, `export`, `import`, `publish` and `serve` to the command line."""
    for command in (report, export, publish, serve):
        app.command()(command)
    app.command("import")(import_)


@hookimpl
def stagebench_answer(standing: "Standing") -> "Answer":
    """Return the title of the run's pages."""
    from stagebench.reports.pages.run import Report
    from stagebench.reports.site.build import answer_of

    return answer_of(Report(standing.folder, standing.rows))


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, as written by `stagebench run` or `comm`."),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of the pages; default: `report` in the run folder.")
    ] = None,
    single: Annotated[
        bool,
        typer.Option(
            "--single",
            help="One file that holds all but the table of all cases, What if and the pages of single cases.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON; write pages only with -o.")] = False,
) -> None:
    """Write HTML pages about runs, finished or not; they need no server and no network."""
    from stagebench.suite.analysis.links import links
    from stagebench.suite.analysis.summary import summarise, unused_records
    from stagebench.suite.errors import RequestError
    from stagebench.suite.results.run_folder import RunFolder

    if len(runs) > 1:
        if single or json or output is None:
            raise RequestError(
                f"{' and '.join(map(str, runs[:2]))}: {len(runs)} runs make a site: give its folder with -o, without "
                "--single or --json"
            )
        from stagebench.reports.site.many import write as write_site

        write_site(runs, output)
        say(f"Report: {output / 'index.html'}")
        return
    folder, page = RunFolder.open(runs[0], None), None
    if json:
        show_json(
            [row.to_dict() for row in (links(folder) if folder.about.of_comm else summarise(folder))], homes=False
        )
    if output is not None or not json:
        from stagebench.reports.site.build import write

        page = write(folder, output or _inside(folder.path, "report"), single)
    if not folder.about.of_comm and (note := unused_records(folder)):
        say(note, err=True)
    if page:
        say(f"Report: {page}", err=json)


def _inside(run: Path, name: str) -> Path:
    """Return the folder within a run that is written to by default; RequestError for a link or a pipe there."""
    from stagebench.suite.errors import RequestError
    from stagebench.suite.results.run_folder import irregular

    for other in irregular(run / name):
        raise RequestError(
            f"{other} is a link or a pipe; what is written there leaves the run; give -o, or move it away"
        )
    return run / name


def export(
    run: Annotated[Path, typer.Argument(help="A run folder, as written by `stagebench run` or `comm`.")],
    formats: Annotated[
        list[str],
        typer.Argument(
            metavar="FORMAT...",
            help="csv, json, schema, parquet, markdown, latex, junit, trace, tensorboard, mlflow, mlperf, loadgen, "
            "charts",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of the files; default: `export` in the run folder.")
    ] = None,
) -> None:
    """Write a run for other tools: spreadsheets, data frames, papers, CI, trace viewers."""
    from stagebench.reports.exports.write import CHARTS, browser, write
    from stagebench.suite.results.run_folder import RunFolder

    folder = RunFolder.open(run, None)
    for format_ in formats:
        say(str(write(folder, format_, output or _inside(run, "export"))))
    if CHARTS in formats and not browser():
        say("no PNGs: no browser is on PATH; apt-get install chromium, or name one by STAGEBENCH_CHROMIUM", err=True)


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="What tf_cnn_benchmarks, Horovod's synthetic benchmarks or nccl-tests printed; MLPerf's training "
            "logs; timm's or Lambda's CSVs; the data-parallel article's JSON lines.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The new folder.")],
    framework: Annotated[
        str | None, typer.Option(help="The framework that ran, where the output does not say it: pytorch, ...")
    ] = None,
) -> None:
    """Read other programs' results; reports show them as foreign and unproven, and compare nothing with them."""
    import sys

    from stagebench.reports.imports.programs import read
    from stagebench.suite.results.foreign import write

    found = [read(file, framework) for file in files]
    results = [result for one in found for result in one.results]
    write(results, output, ("stagebench", *sys.argv[1:]))
    for why in (why for one in found for why in one.skipped):
        say(f"skipped: {why}", err=True)
    say(f"{output}: {len(results)} foreign results\n{report_next(output)}")


def publish(
    directory: Annotated[Path, typer.Argument(help="A folder with run folders anywhere below it.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the site.")] = Path("site"),
    address: Annotated[str, typer.Option(help="Where the site will stand, for the feed: https://...")] = "",
    docs: Annotated[Path | None, typer.Option(help="Built documentation, to stand beside the runs.")] = None,
    workflow: Annotated[
        bool, typer.Option("--workflow", help="Also write a workflow for GitHub Pages into the runs' repository.")
    ] = False,
    template: Annotated[
        bool, typer.Option("--template", help="Write no site, but the files with which a repository of results begins.")
    ] = False,
) -> None:
    """Write the site of all whole runs of a folder, one a system or one a run; exit code 1: a run was left out."""
    from stagebench.reports.site import many

    if template:
        for file in many.template_of(directory, address):
            say(f"{file.path}{'' if file.write() else ': there is one already; it was left as it is'}")
        return
    wanted = many.workflow_of(directory, docs, address) if workflow else None  # refused before anything is written
    found, left_out = many.publish(directory, output, address, docs)
    say(f"Site: {output / 'index.html'} ({counted(len(found), 'run')})")
    if wanted:
        new = wanted.write()
        say(f"Workflow: {wanted.path if new else 'there is one already; it was left as it is'}")
    for run in left_out:
        say(f"left out: {directory / run.run}: {'; '.join(run.problems[:3])}", err=True)
    if left_out:
        raise typer.Exit(1)


def serve(
    directory: Annotated[Path, typer.Argument(help="A run folder, or one with run folders below it.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="On this machine alone; 0: a free one.")] = 8000,
) -> None:
    """Show runs in a browser; a page that is loaded again shows what was measured since."""
    from stagebench.reports.site.serve import Server
    from stagebench.suite.files import scratch

    with scratch() as output, Server(directory, output, port) as running:
        say(f"http://127.0.0.1:{running.server_address[1]}/ (Ctrl-C ends it)")
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            say("")
