"""Which files a run looks at: the backend's own, each once, in one order, and none that lies elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from chirp_migrate.additions.scaffold import scaffold_files
from chirp_migrate.engine.discover import LARGEST_FILE_BYTES, LARGEST_NOTEBOOK_BYTES, discover_files
from chirp_migrate.errors import UsageProblem


def tree(root: Path, *names: str) -> None:
    """Make files with a line of Python each."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")


def reasons(root: Path) -> dict[str, str]:
    """What is left out, and why."""
    return {one.path: one.reason for one in discover_files(root).left_out}


def git(folder: Path, *arguments: str) -> None:
    """Run git without the user's configuration."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=environment, check=True, capture_output=True)


def test_python_files_and_notebooks_are_found_in_order(tmp_path: Path) -> None:
    tree(tmp_path, "utils/b.py", "utils/a.py", "train.py", "notes.txt", "notebooks/N.ipynb")
    found = discover_files(tmp_path)
    assert found.root == tmp_path.resolve()
    assert found.files == ("train.py", "utils/a.py", "utils/b.py")
    assert found.notebooks == ("notebooks/N.ipynb",)
    assert found.left_out == ()


def test_a_single_file_is_its_own_tree(tmp_path: Path) -> None:
    tree(tmp_path, "utils/a.py", "utils/b.py")
    found = discover_files(tmp_path / "utils" / "a.py")
    assert (found.root, found.files) == ((tmp_path / "utils").resolve(), ("a.py",))


def test_what_is_not_the_backends_own_is_left_out_with_the_reason(tmp_path: Path) -> None:
    tree(tmp_path, "a.py", ".git/x.py", "build/x.py", "lib/site-packages/x.py", "p.egg-info/x.py", ".tox/x.py")
    tree(tmp_path, "chirpid_patch/x.py", ".chirp-migrate/0001/x.py", "mine/pyvenv.cfg", "mine/x.py")
    assert discover_files(tmp_path).files == ("a.py",)
    assert reasons(tmp_path) == {
        ".chirp-migrate": "the journal of earlier runs",
        ".git": "version control",
        ".tox": "a virtual environment",
        "build": "build output",
        "chirpid_patch": "the vendored runtime",
        "lib/site-packages": "installed packages",
        "mine": "a virtual environment",
        "p.egg-info": "build output",
    }


VENDORED = "vendored code; to migrate it, name it on the command line"


@pytest.mark.parametrize(
    "name", ["vendor", "_vendor", "vendored", "utils/_vendored", "third_party", "third-party", "thirdparty", "Vendor"]
)
def test_vendored_code_is_read_but_left_as_it_is_unless_it_is_named(tmp_path: Path, name: str) -> None:
    tree(tmp_path, "a.py", f"{name}/x.py", f"{name}/deep/y.py", f"{name}/build/z.py")
    found = discover_files(tmp_path)
    assert found.files == ("a.py",)
    assert found.context == (f"{name}/deep/y.py", f"{name}/x.py")
    assert reasons(tmp_path) == {name: VENDORED}
    assert discover_files(tmp_path / name).files == ("deep/y.py", "x.py")
    assert discover_files(tmp_path / name / "x.py").files == ("x.py",)


@pytest.mark.parametrize("sign", ["LICENSE", "licence.txt", "COPYING", "setup.py", "pyproject.toml", "vendored.txt"])
@pytest.mark.parametrize("folder", ["extern", "src/external"])
def test_external_code_is_vendored_where_it_brought_something_of_its_own(
    tmp_path: Path, folder: str, sign: str
) -> None:
    tree(tmp_path, "a.py", f"{folder}/lib/x.py")
    assert discover_files(tmp_path).files == ("a.py", f"{folder}/lib/x.py"), "the backend's own, for all we know"
    (tmp_path / folder / "lib" / sign).write_text("of its own\n")
    assert discover_files(tmp_path).files == ("a.py",)
    assert reasons(tmp_path) == {folder: VENDORED}


def test_a_backend_that_is_all_vendored_says_so(tmp_path: Path) -> None:
    tree(tmp_path, "vendor/x.py")
    with pytest.raises(UsageProblem, match="vendored code"):
        discover_files(tmp_path)


def test_a_package_of_that_name_further_down_is_the_backends_own(tmp_path: Path) -> None:
    tree(tmp_path, "package/chirpid_patch/x.py")
    assert discover_files(tmp_path).files == ("package/chirpid_patch/x.py",)


def test_what_apply_added_is_left_as_it_is_also_when_edited(tmp_path: Path) -> None:
    tree(tmp_path, "utils/a.py")
    for name, text in scaffold_files(tmp_path):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    assert discover_files(tmp_path).files == ("utils/a.py",)
    (tmp_path / "utils" / "dataloader_factory.py").write_text("x = 1\n")  # the backend's own, whatever its name
    assert discover_files(tmp_path).files == ("utils/a.py", "utils/dataloader_factory.py")


def test_a_link_never_leads_outside_nor_to_a_second_rewrite(tmp_path: Path) -> None:
    root = tmp_path / "root"
    tree(tmp_path, "outside/far.py", "root/a.py", "root/generated.txt")
    (root / "far.py").symlink_to(tmp_path / "outside" / "far.py")
    (root / "folder").symlink_to(tmp_path / "outside", target_is_directory=True)
    (root / "again.py").symlink_to("a.py")
    (root / "nowhere.py").symlink_to("missing.py")
    (root / "loop.py").symlink_to("loop.py")
    (root / "other_name.py").symlink_to("generated.txt")
    assert discover_files(root).files == ("a.py", "other_name.py")
    assert reasons(root) == {
        "again.py": "a link to a.py",
        "far.py": "a link to a place outside the folder",
        "folder": "a link to a folder",
        "loop.py": "a link that leads nowhere",
        "nowhere.py": "a link that leads nowhere",
    }


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a.py")
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(tmp_path)  # the name of a socket must be short
        bound.bind("socket.py")
        assert reasons(tmp_path) == {"pipe.py": "not a regular file", "socket.py": "not a regular file"}
    assert discover_files(tmp_path).files == ("a.py",)


def test_a_huge_file_is_data(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    for name, size in (("huge.py", LARGEST_FILE_BYTES), ("huge.ipynb", LARGEST_NOTEBOOK_BYTES)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size + 1)
        with pytest.raises(UsageProblem, match=f"{name} is larger than"):
            discover_files(tmp_path / name)
    assert discover_files(tmp_path).files == ("a.py",)
    assert reasons(tmp_path) == {"huge.py": "larger than 4 MiB", "huge.ipynb": "larger than 64 MiB"}
    assert discover_files(tmp_path / "a.py").context == ()


def test_what_git_ignores_is_left_out(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    tree(tmp_path, "a.py", "scratch/x.py", "generated_1.py", "tracked/generated_2.py")
    git(tmp_path, "add", "tracked")
    (tmp_path / ".gitignore").write_text("scratch/\ngenerated_*.py\n")
    assert discover_files(tmp_path).files == ("a.py", "tracked/generated_2.py")
    assert reasons(tmp_path) == {
        ".git": "version control",
        "generated_1.py": "ignored by git",
        "scratch": "ignored by git",
    }


def test_a_folder_that_git_ignores_was_named_on_purpose(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    tree(tmp_path, "demo/backend/a.py")
    (tmp_path / ".gitignore").write_text("/demo/\n")
    assert discover_files(tmp_path / "demo" / "backend").files == ("a.py",)
    assert discover_files(tmp_path / "demo").files == ("backend/a.py",)


@pytest.mark.parametrize("name", ["missing", "empty", "text.txt", "caches"])
def test_a_path_without_python_is_one_sentence_that_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("x")
    tree(tmp_path, "caches/build/x.py")
    with pytest.raises(UsageProblem, match=name) as caught:
        discover_files(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.skipif(os.name == "nt", reason="names are not bytes there")
def test_names_that_are_not_text_are_kept(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/n\xff\nx.py"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.close(descriptor)
    (name,) = discover_files(tmp_path).files
    assert os.fsencode(name) == b"n\xff\nx.py"
