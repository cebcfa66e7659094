"""The workflow that publishes a repository's runs: what a folder is called never becomes a command, nor YAML."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagebench.reports.command import publish
from stagebench.reports.site import many
from stagebench.reports.site.many import PLACE, workflow_of
from stagebench.suite.errors import RequestError
from tests.reports.made_run import MadeRun, case_of
from tests.support.errors import raising

WITH_RUNS = "${{ !cancelled() && hashFiles('**/run.json') != '' }}"
HOSTILE = (
    *("results; id", "a\nb", 'it\'s "quoted"', "a: b # c", "$(id)", "`id`", "$HOME", "-o", "* [x] {y} & !z"),
    *("${{ secrets.X }}", "'${{ secrets.X }}'", "$${{ github.token }}", "x${{ y }}${{z"),
    *("\u2028\x85\x1b]0;x\x07\u202e", "größe 😀"),
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    return tmp_path / "repository"


def steps(text: str) -> list[dict[str, Any]]:
    document = yaml.safe_load(text)
    pages, deploy = document["jobs"]["pages"], document["jobs"]["deploy"]
    found: list[dict[str, Any]] = pages["steps"]
    assert set(document) == {"name", "on", "permissions", "jobs"}
    assert document["on"] == ["push", "pull_request"], "on every branch: a run is checked before it is merged"
    assert "if" not in pages
    assert document["permissions"] == {"contents": "read"}, "a stranger's pull request writes nothing"
    assert "github.ref_name == github.event.repository.default_branch" in deploy["if"]
    assert "github.event_name == 'push'" in deploy["if"]
    # A template has no run, and no site.
    upload = next(each for each in found if each.get("id") == "site")
    assert pages["outputs"] == {"site": "${{ steps.site.outcome }}"}
    assert "needs.pages.outputs.site == 'success'" in deploy["if"]
    assert found[3]["if"] == upload["if"] == WITH_RUNS
    assert [next(iter(each)) for each in found] == ["uses", "uses", "run", "run", "uses"]
    return found


def published(text: str) -> list[str]:
    return shlex.split(steps(text)[3]["run"])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_is_a_word_of_the_command(repository: Path, name: str) -> None:
    for folder in (repository / name, repository / "docs" / name):
        folder.mkdir(parents=True)
    text = workflow_of(repository / name, repository / "docs" / name, name).text
    _, _, runs, option, docs, *rest = published(text)
    assert (repository / runs, option, repository / docs) == (repository / name, "--docs", repository / "docs" / name)
    assert rest == ["-o", "$RUNNER_TEMP/site", "--address", name]
    assert not runs.startswith("-")
    assert text.isascii(), "a line that reads in the other direction hides what it does"
    assert "${{" not in steps(text)[3]["run"], "GitHub would put a value there, before any shell reads the quotes"


def test_folders_are_named_as_at_the_repository_s_root(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("deep/results", "site"):
        (repository / name).mkdir(parents=True)
    monkeypatch.chdir(repository / "deep")
    found = workflow_of(Path("results"), Path("../site"))
    assert found.path == repository / PLACE
    assert published(found.text)[:5] == ["stagebench", "publish", "deep/results", "--docs", "site"]
    assert published(workflow_of(repository / "deep" / "results").text)[2] == "deep/results"
    assert published(workflow_of(repository).text)[2] == "."
    assert str(repository) not in found.text
    (repository / "site" / ".git").write_text("gitdir: /elsewhere\n")
    assert workflow_of(repository / "site" / "results").path == repository / "site" / PLACE, "a worktree is one, too"


def test_what_the_repository_does_not_hold_is_refused(repository: Path, tmp_path: Path) -> None:
    with raising(RequestError, tmp_path / "results"):
        workflow_of(tmp_path / "results")
    with pytest.raises(RequestError, match=r"built does not lie in .*repository, whose workflow publishes it"):
        workflow_of(repository / "results", tmp_path / "built")
    (tmp_path / "results").mkdir()
    (repository / "link").symlink_to(tmp_path / "results")
    with pytest.raises(RequestError, match="lies in no Git repository"):
        workflow_of(repository / "link")


def test_settings_of_the_repository_are_variables_of_the_shell_and_the_site_is_uploaded(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, installing, publishing, upload = steps(workflow_of(repository).text)
    assert installing["env"] == {"STAGEBENCH": "${{ vars.STAGEBENCH }}"}
    assert installing["run"].startswith('pip install "${STAGEBENCH:?')
    assert publishing["env"] == {"PAGES_ADDRESS": "${{ vars.PAGES_ADDRESS }}"}
    assert publishing["run"].endswith(' -o "$RUNNER_TEMP/site" --address "$PAGES_ADDRESS"')
    assert upload["with"] == {"path": "${{ runner.temp }}/site"}
    monkeypatch.setattr(many, "OWN", repository)
    assert steps(workflow_of(repository).text)[2] == {"run": "pip install ."}, "a clone of stagebench installs itself"


def test_a_repository_of_results_begins_with_a_template(repository, tmp_path, capsys):
    publish(repository, template=True)
    assert {path.name for path in repository.iterdir()} == {".git", ".github", ".gitignore", "README.md"}
    assert published((repository / PLACE).read_text())[2] == "."
    (repository / "README.md").write_text("mine")
    publish(repository, template=True)
    assert capsys.readouterr().out.count("there is one already; it was left as it is") == 3
    assert (repository / "README.md").read_text() == "mine"
    MadeRun(repository / "node" / "quick").proven(case_of())
    publish(repository, tmp_path / "site")
    with pytest.raises(RequestError, match="lies in no Git repository"):
        publish(tmp_path / "elsewhere", template=True)


def test_a_workflow_is_written_once_and_refused_before_the_site(repository, tmp_path, capsys):
    MadeRun(repository / "results; id" / "run").proven(case_of())
    publish(repository / "results; id", tmp_path / "site", workflow=True)
    assert f"Workflow: {repository / PLACE}\n" in capsys.readouterr().out
    assert published((repository / PLACE).read_text())[2] == "results; id"
    (repository / PLACE).write_text("mine")
    publish(repository / "results; id", tmp_path / "site", workflow=True)
    assert "there is one already; it was left as it is" in capsys.readouterr().out
    assert (repository / PLACE).read_text() == "mine"
    MadeRun(tmp_path / "elsewhere" / "run").proven(case_of())
    with pytest.raises(RequestError, match="lies in no Git repository"):
        publish(tmp_path / "elsewhere", tmp_path / "other", workflow=True)
    assert not (tmp_path / "other").exists()
