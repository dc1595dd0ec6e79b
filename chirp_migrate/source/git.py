"""Find out which files of a project git ignores, and which files have uncommitted changes."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from chirp_migrate.errors import WriteRefused

#: Largest number of paths in one call of git. The command line then is far below the limits of all systems.
_PATHS_A_CALL = 200


def refuse_uncommitted_changes(root: Path, paths: Iterable[str]) -> None:
    """Check that git can restore the present bytes of all ``paths``, so that a rewrite of the files loses nothing.

    Untracked files count as changed, because git has no copy of their bytes. The check skips files that git ignores,
    although git cannot restore these files. The function does nothing if ``root`` is outside a work tree, or if git is
    not installed.

    Args:
        root: folder of the project.
        paths: posix paths relative to ``root``.

    Raises:
        WriteRefused: files have uncommitted changes (the message lists the files), or git cannot read the repository.
    """
    changed = uncommitted_paths(root, paths)
    if changed:
        raise WriteRefused(
            f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} uncommitted changes: commit or stash "
            "these changes, or pass --allow-dirty. Nothing was changed."
        )


def uncommitted_paths(root: Path, paths: Iterable[str]) -> list[str]:
    """Return the modified, staged and untracked files among ``paths``, sorted.

    Raises:
        WriteRefused: git is installed but cannot read the repository.
    """
    repositories: dict[Path, list[str]] = defaultdict(list)
    asked = {_resolve_link(root, path): path for path in paths}
    for path in asked:
        repositories[_nearest_repository(root, path)].append(path)
    changed: list[str] = []
    for base, members in repositories.items():
        prefix = _prefix_in_work_tree(base)
        if prefix is None:
            continue
        offset = "" if base == root else base.relative_to(root).as_posix() + "/"
        by_name = {prefix + path.removeprefix(offset): asked[path] for path in members}
        for start in range(0, len(members), _PATHS_A_CALL):
            some = [path.removeprefix(offset) for path in members[start : start + _PATHS_A_CALL]]
            found = run_git(base, ["status", "--porcelain", "-z", "--no-renames", "-uall", "--", *some])
            if found is None or found.returncode:
                raise WriteRefused(_git_error_message(base, found))
            names = [entry[3:] for entry in _split_names(found.stdout)]
            changed += [by_name[name] for name in names if name in by_name]
    return sorted(changed)


def ignored_paths(root: Path) -> frozenset[str]:
    """Return the paths under ``root`` that git ignores. The paths are relative to ``root``, and folders end in ``/``.

    The result is empty outside a git work tree, and if git ignores ``root`` itself.
    """
    inside = run_git(root, ["rev-parse", "--is-inside-work-tree"])
    if inside is None or inside.stdout.strip() != b"true":
        return frozenset()
    listed = run_git(root, ["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"])
    if listed is None or listed.returncode:
        return frozenset()
    names = frozenset(_split_names(listed.stdout))
    return frozenset() if names & {"./", ""} else names


def _resolve_link(root: Path, path: str) -> str:
    """Return ``path`` with all symbolic links resolved, or ``path`` itself if its target is outside ``root``.

    For a link, git stores only the name of the target. To find changes in the target, git needs the path of the target.
    """
    top, real = Path(os.path.realpath(root)), Path(os.path.realpath(root / path))
    return real.relative_to(top).as_posix() if real.is_relative_to(top) else path


def work_tree_top(folder: Path) -> Path | None:
    """Return the top of the git work tree that contains ``folder`` (an absolute path); None outside a work tree."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def _nearest_repository(root: Path, path: str) -> Path:
    """Return the innermost repository below ``root`` that contains ``path``, else ``root``. Git runs in this folder."""
    folder = (root / path).parent
    while folder != root and folder.is_relative_to(root):
        if (folder / ".git").exists():
            return folder
        folder = folder.parent
    return root


def _prefix_in_work_tree(base: Path) -> str | None:
    """Return the path of ``base`` relative to the top of its git work tree; ``None`` outside a work tree.

    The result ends in ``/``, or is empty if ``base`` is the top itself.
    """
    found = run_git(base, ["rev-parse", "--is-inside-work-tree", "--show-prefix"])
    if found is None or (found.returncode and b"not a git repository" in found.stderr):
        return None
    if found.returncode:
        raise WriteRefused(_git_error_message(base, found))
    inside, _, prefix = os.fsdecode(found.stdout).partition("\n")
    return prefix.removesuffix("\n") if inside == "true" else None


def _git_error_message(base: Path, found: subprocess.CompletedProcess[bytes] | None) -> str:
    said = os.fsdecode(found.stderr).strip().splitlines() if found else []
    why = f" ({said[0]})" if said else ""
    return f"git cannot list uncommitted changes in {base}{why}: repair the work tree, or pass --allow-dirty."


def run_git(
    folder: Path, arguments: Sequence[str], stdin: bytes = b"", may_fetch: bool = True
) -> subprocess.CompletedProcess[bytes] | None:
    """Run git in ``folder`` without changing git's index; return ``None`` if git is not installed.

    Args:
        folder: working directory of git.
        arguments: the arguments of git, such as ``["status", "--porcelain"]``.
        stdin: the bytes that git reads from standard input.
        may_fetch: whether git may download objects that a partial clone lacks.
    """
    # If a git hook runs this program, the hook has set environment variables that select the repository of the hook.
    # Remove these variables, so that git uses the repository of the folder.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, "GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1", "LC_ALL": "C"}
    if not may_fetch:
        environment["GIT_NO_LAZY_FETCH"] = "1"
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *arguments]
    try:
        return subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, check=False)
    except FileNotFoundError:
        return None


def _split_names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]
