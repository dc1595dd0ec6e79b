"""A project has one journal, wherever in it a run was started, and paths are told from there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from support import run, sentence, snapshot, write_files

from chirp_migrate.engine.discover import journal_root
from chirp_migrate.errors import UsageProblem
from chirp_migrate.verify.sides.baseline import original_files

SOURCE = "from torch.utils.data import DataLoader\n\nloader = DataLoader([1, 2], batch_size=2)\n"


@pytest.fixture
def project(tree: Path) -> Path:
    """A git work tree with a package, a folder of scripts and a file of its own."""
    subprocess.run(["git", "init", "--quiet"], cwd=tree, check=True)
    return write_files(tree, dict.fromkeys(("package/deep/a.py", "package/b.py", "scripts/c.py"), SOURCE))


def test_a_run_on_a_file_or_a_folder_is_recorded_at_the_top_and_undone_from_anywhere(project: Path) -> None:
    before = snapshot(project)
    for path in ("package/deep", "package/b.py", "scripts"):
        assert run("apply", "--allow-dirty", project / path).exit_code == 0
    assert [one.parent for one in project.rglob(".chirp-migrate")] == [project]
    shown = run("report", project / "scripts").output
    assert all(name in shown for name in ("package/deep/a.py", "package/b.py", "scripts/c.py"))
    assert "0003" in run("rollback", "--list", project / "package" / "deep").output
    assert "scripts/c.py" in run("rollback", project / "package" / "deep" / "a.py").output
    for place in ("scripts", "package"):
        assert run("rollback", project / place).exit_code == 0
    assert snapshot(project) == before


def test_every_path_that_is_told_starts_at_the_top(project: Path) -> None:
    diff = run("apply", "--diff", project / "package" / "deep").stdout
    assert diff.startswith("# package/deep/a.py:3: CHP001")
    subprocess.run(["git", "apply", "--check", "-"], cwd=project, input=diff.encode(), check=True)
    assert "package/b.py" in run("plan", project / "package").output
    for command in (("check", "--format", "json"), ("apply", "--allow-dirty", "--json", "-")):
        told = json.loads(run(*command, project / "package" / "b.py").stdout)
        assert [one["path"] for one in (*told["files"], *told["findings"])] == ["package/b.py", "package/b.py"]
    assert run("check", project / "package" / "b.py").exit_code == 0


def test_a_plan_and_comments_are_recorded_there_too(project: Path) -> None:
    plan, folder = project / "plan.json", project / "package" / "deep"
    assert run("plan", folder, "-o", plan).exit_code == 0
    assert run("apply", "--allow-dirty", "--plan", plan, folder).exit_code == 0
    added = run("check", "--add-ignore", project / "scripts")
    assert added.exit_code == 0 and "1 finding in 1 file" in added.stderr
    listed = json.loads(run("rollback", "--list", "--json", "-", project).stdout)["runs"]
    assert [[file["path"] for file in one["files"]] for one in listed] == [["package/deep/a.py"], ["scripts/c.py"]]


def test_a_command_that_fails_in_the_folder_takes_the_run_back(project: Path) -> None:
    before = snapshot(project)
    assert run("apply", "--allow-dirty", "--check-with", "test -f gone", project / "scripts").exit_code == 5
    assert snapshot(project) == before
    assert run("apply", "--allow-dirty", "--check-with", "test -f c.py", project / "scripts").exit_code == 0


def test_verify_takes_the_originals_of_its_folder(project: Path) -> None:
    run("apply", "--allow-dirty", project)
    assert original_files(project / "package") == {"b.py": SOURCE.encode(), "deep/a.py": SOURCE.encode()}
    run("rollback", project)
    run("apply", "--allow-dirty", project / "package")
    with pytest.raises(UsageProblem):
        original_files(project / "scripts")


def test_a_journal_that_is_nearer_is_gone_on_with(tree: Path) -> None:
    (tree / "pyproject.toml").touch()
    (tree / "inner").mkdir()
    assert journal_root(tree / "inner") == tree
    (tree / "inner" / ".chirp-migrate").mkdir()
    assert journal_root(tree / "inner") == tree / "inner"
    assert journal_root(tree) == tree


def test_outside_of_a_project_the_journal_is_in_the_folder_itself(tree: Path) -> None:
    (tree / "a.py").write_text(SOURCE)
    (tree / "inner").mkdir()
    run("apply", tree / "a.py")
    assert journal_root(tree / "inner") == journal_root(tree / "a.py") == tree


def test_a_project_of_another_user_around_a_folder_is_not_written_to(tree: Path) -> None:
    (tree / "inner").mkdir()
    (tree / ".git").mkdir()
    assert journal_root(tree / "inner") == tree
    try:
        os.chown(tree, 12345, -1)
    except PermissionError:
        pytest.skip("only root gives folders away")
    assert journal_root(tree / "inner") == tree / "inner"


@pytest.mark.parametrize("command", [("rollback",), ("rollback", "--list"), ("report",)])
def test_where_nothing_was_applied_every_command_ends_with_2(tree: Path, command: tuple[str, ...]) -> None:
    (tree / "a.py").write_text("x = 1\n")
    done = run(*command, tree)
    assert done.exit_code == 2 and f"nothing was applied in {tree}" in sentence(done)
    assert UsageProblem.exit_code == 2  # what verify ends with
