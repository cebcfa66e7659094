"""A workflow of GitHub Actions that checks and publishes a repository's runs, and the template of such a repository."""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from stagebench.reports.site.frame import made
from stagebench.suite.errors import RequestError
from stagebench.suite.files import real, write_whole
from stagebench.suite.text import command_line

PLACE = Path(".github/workflows/stagebench-pages.yml")
HEAD = "# Checks the runs of this repository on every branch; publishes those of the default branch as a site.\n"
README = """# Results

One folder a system, one folder a run within it:

    SYSTEM/RUN/run.json, cases.json, records/, proofs/, hosts/, attempts/, bundles/

Add yours in a pull request, after

    stagebench run quick -o SYSTEM/quick
    stagebench check-run SYSTEM/quick

Records hold the names of hosts and the addresses of a training's ranks. The workflow checks every run and names the
file of each that is not whole, or was altered. What a check cannot see without signatures: who measured a run, records
that were removed, and a value that was changed wherever it is kept, with new digests.
"""
IGNORED = "*/*/report/\n*/*/export/\n*.partial\n.lock\n"
# Not from a registry: stagebench is in none, and whoever took its name there would run code in the workflow.
INSTALLING = 'pip install "${STAGEBENCH:?set this variable of the repository to what pip installs: git+https://...}"'
# A template has no run yet. Else a run that is left out makes the job fail, and the others are published.
WITH_RUNS = "${{ !cancelled() && hashFiles('**/run.json') != '' }}"
# From the default branch, whatever its name is.
DEPLOYED = (
    "${{ !cancelled() && needs.pages.outputs.site == 'success' && github.event_name == 'push' && "
    "github.ref_name == github.event.repository.default_branch }}"
)
OWN = Path(__file__).resolve().parents[2]  # the clone that this code runs from, or an environment's site-packages


class NewFile(NamedTuple):
    """A file for a repository, not yet written."""

    path: Path
    text: str

    def write(self) -> bool:
        """Return False where there is one already: it is left as it is."""
        if self.path.exists():
            return False
        made(self.path.parent)
        write_whole(self.path, self.text)
        return True


def workflow_of(directory: Path, docs: Path | None = None, address: str = "") -> NewFile:
    """Return the workflow that does in the folder's repository what `publish` does with the same arguments.

    RequestError for folders that the repository does not hold.
    """
    place = real(directory)
    root = next((folder for folder in (place, *place.parents) if (folder / ".git").exists()), None)
    if root is None:
        raise RequestError(
            f"{directory} lies in no Git repository, so no workflow could publish it; begin one (`git init`), or name "
            "a folder in one"
        )
    beside = ("--docs", _within(root, docs)) if docs else ()
    # The site is outside the checkout: a folder `site` in it is the repository's own.
    line = f'{quoted("stagebench", "publish", _within(root, directory), *beside)} -o "$RUNNER_TEMP/site" --address '
    steps = [
        {"uses": "actions/checkout@v4"},
        {"uses": "actions/setup-python@v5", "with": {"python-version": "3.13"}},
        {"run": "pip install ."} if root == OWN else _with_variable("STAGEBENCH", INSTALLING),
        {
            **(
                {"run": line + quoted(address)}
                if address
                else _with_variable("PAGES_ADDRESS", f'{line}"$PAGES_ADDRESS"')
            ),
            "if": WITH_RUNS,
        },
        {
            "uses": "actions/upload-pages-artifact@v3",
            "id": "site",
            "if": WITH_RUNS,
            "with": {"path": "${{ runner.temp }}/site"},
        },
    ]
    document = {
        "name": "benchmark pages",
        "on": ["push", "pull_request"],
        "permissions": {"contents": "read"},
        "jobs": {
            "pages": {
                "runs-on": "ubuntu-latest",
                "outputs": {"site": "${{ steps.site.outcome }}"},
                "steps": steps,
            },
            "deploy": {
                "needs": "pages",
                "if": DEPLOYED,
                "runs-on": "ubuntu-latest",
                "permissions": {"pages": "write", "id-token": "write"},
                "environment": {"name": "github-pages"},
                "steps": [{"uses": "actions/deploy-pages@v4"}],
            },
        },
    }
    return NewFile(root / PLACE, HEAD + yaml.safe_dump(document, sort_keys=False, width=float("inf")))


def template_of(directory: Path, address: str = "") -> list[NewFile]:
    """Return the files with which a repository of results begins; RequestError for a folder in no Git repository."""
    named = {"README.md": README, ".gitignore": IGNORED}
    return [*(NewFile(directory / name, text) for name, text in named.items()), workflow_of(directory, None, address)]


def quoted(*words: str | Path) -> str:
    """Quote the words for a shell's line in a workflow, where GitHub replaces `${{ ... }}` before the shell reads it.

    The quotes around a word with a `$` are single ones: closing and opening them again behind it changes nothing.
    """
    return command_line(*words).replace("${{", "$''{{")


def _with_variable(name: str, line: str) -> dict[str, Any]:
    """Return a step that has a variable of the repository's settings as one of the shell's: a value, and never code."""
    return {"run": line, "env": {name: f"${{{{ vars.{name} }}}}"}}


def _within(root: Path, folder: Path) -> Path:
    """Return the folder as it is called at the repository's root."""
    place = real(folder)
    if not place.is_relative_to(root):
        raise RequestError(f"{folder} does not lie in {root}, whose workflow publishes it; move it there")
    return place.relative_to(root)
