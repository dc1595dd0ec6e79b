"""Find the Python files and notebooks of a project, and the reason for each file that is excluded."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from chirp_migrate.additions.scaffold import SCAFFOLD_PATHS, is_scaffold_file
from chirp_migrate.errors import UsageProblem
from chirp_migrate.plans.plan import SkippedFile
from chirp_migrate.source.git import ignored_paths
from chirp_migrate.transaction.journal_schema import JOURNAL_FOLDER

#: Size limit for Python files, in bytes. The tool excludes a larger file as generated data.
LARGEST_FILE_BYTES = 4 * 1024**2

#: Size limit for notebooks, in bytes. A notebook contains its pictures. The tool excludes a larger notebook as data.
LARGEST_NOTEBOOK_BYTES = 64 * 1024**2

_SIZE_LIMITS = {".py": LARGEST_FILE_BYTES, ".ipynb": LARGEST_NOTEBOOK_BYTES}

#: Suffixes of configuration files, which may name classes, and of Cython sources. The tool ignores such a file if the
#: file is larger than the size limit, or if its folder has more than ``_MOST_SETTINGS`` such files. The files are then
#: probably data.
_SETTINGS = (".yaml", ".yml", ".toml", ".json", ".jsonl", ".ini", ".cfg", ".gin", ".pyx")
_LARGEST_SETTINGS_BYTES = 256 * 1024
_MOST_SETTINGS = 200

#: Names of folders without source code of the project, each with the contents of such a folder.
_FOLDERS = {
    ".chirp-migrate": "the journal of earlier runs",
    ".eggs": "build output",
    ".git": "version control",
    ".hg": "version control",
    ".hypothesis": "a cache",
    ".ipynb_checkpoints": "a cache",
    ".mypy_cache": "a cache",
    ".nox": "a virtual environment",
    ".pytest_cache": "a cache",
    ".ruff_cache": "a cache",
    ".svn": "version control",
    ".tox": "a virtual environment",
    "__pycache__": "a cache",
    "_build": "build output",
    "build": "build output",
    "dist": "build output",
    "node_modules": "installed packages",
    "site-packages": "installed packages",
}

#: Names of folders with vendored code, which is copied from another project. The next copy of the other project would
#: overwrite any rewrite.
_VENDORED = frozenset(
    {"3rdparty", "_vendor", "_vendored", "third-party", "third_party", "thirdparty", "vendor", "vendored"}
)
#: Names of folders that contain vendored code only in some projects. Such a folder counts as vendored code only if it
#: contains a licence or packaging files.
_PERHAPS_VENDORED = frozenset({"_extern", "_external", "extern", "external", "externals"})
#: Names of files that show that a folder is a copy of another project: a licence, packaging files, a list of packages.
_BROUGHT_ALONG = re.compile(
    r"(licen[cs]e|copying|notice)([-._].*)?|setup\.(py|cfg)|pyproject\.toml|pkg-info|.*\.dist-info|vendor(ed)?\.txt",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class DiscoveredFiles:
    """The result of :func:`discover_files`.

    Attributes:
        root: the absolute path of the searched folder; all other paths are relative to this folder.
        files: posix paths of the Python files to check, sorted.
        notebooks: posix paths of the notebooks to check, sorted.
        left_out: excluded folders and files, sorted, each with the reason.
        context: posix paths of files and notebooks that the user excludes, and of vendored files (copies from other
            projects), sorted. Rules read the definitions in these files, because the project uses them. Rules do not
            rewrite these files.
        settings: posix paths of configuration files (YAML, TOML, JSON, INI, gin) and Cython sources, sorted. Rules
            search these files, because such a file may name a class that the project uses.
    """

    root: Path
    files: tuple[str, ...]
    notebooks: tuple[str, ...]
    left_out: tuple[SkippedFile, ...]
    context: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


def project_root(path: Path) -> Path:
    """Return the absolute path of the folder ``path``, or of the folder that contains the file ``path``.

    Raises:
        UsageProblem: there is no file or folder at ``path``.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageProblem(f"{path} cannot be opened ({error.strerror}): pass the folder of your project.") from None
    except ValueError:
        raise UsageProblem("the path contains a NUL character: pass the folder of your project.") from None
    if stat.S_ISDIR(mode):
        return path.resolve()
    if stat.S_ISREG(mode):
        return path.resolve().parent
    raise UsageProblem(f"{path} is neither a folder nor a file: pass the folder of your project.")


def journal_root(path: Path) -> Path:
    """Return the absolute path of the folder whose journal (``.chirp-migrate/``) records runs on ``path``.

    A project has one journal. The top folder of a project is the top of its git work tree. Without git, the top folder
    is the nearest folder with a ``pyproject.toml``. The function searches the folders from ``path`` up to the top
    folder, and returns the nearest folder that has a journal. If no folder has a journal, the result is the top folder.

    If ``path`` is in no project, the function searches ``path`` and all folders above in the same way. If no folder has
    a journal, the result is the folder of ``path`` itself. Every search ends below the first folder that belongs to
    another user, because a rollback with another user's journal could write arbitrary bytes into this project.

    Raises:
        UsageProblem: see :func:`project_root`.
    """
    root = project_root(path)
    owner = root.stat().st_uid
    above = [root, *takewhile(lambda folder: folder.stat().st_uid == owner, root.parents)]
    top = next((one for marker in (".git", "pyproject.toml") for one in above if os.path.lexists(one / marker)), None)
    within = above if top is None else above[: above.index(top) + 1]
    return next((one for one in within if os.path.lexists(one / JOURNAL_FOLDER)), top or root)


def discover_files(
    path: Path, *, notebooks: bool = True, reason_to_exclude: Callable[[str], str | None] = lambda _: None
) -> DiscoveredFiles:
    """Find the Python files (``.py``) and notebooks (``.ipynb``) at or below ``path``.

    These files are excluded:

    - files that an earlier ``apply`` added, and ``chirpid_patch`` itself,
    - folders of version control, virtual environments, installed packages, caches and build output,
    - vendored code: each folder called ``vendor``, ``third_party`` or similar, and each folder called ``extern``,
      ``external`` or similar that contains a licence or packaging file (such as ``setup.py``),
    - links to folders, to missing files, to places outside of the searched folder, and to files with the same suffix,
    - Python files above 4 MiB and notebooks above 64 MiB,
    - files that git ignores.

    ``path`` itself is never excluded, because the user named this path.

    Args:
        path: folder of the project, or one Python file or notebook.
        notebooks: whether to include notebooks.
        reason_to_exclude: function that gets the posix path of a file, relative to the root. The function returns the
            reason why the user excludes the file, or ``None`` if the user does not exclude the file. If ``path`` is a
            file, ``reason_to_exclude`` is not called.

    Raises:
        UsageProblem: the file or folder ``path`` does not exist, contains neither a Python file nor a notebook, or is a
            file above the size limit.
    """
    root = project_root(path)
    if not path.is_dir():
        name = path.resolve().name
        if path.suffix not in _SIZE_LIMITS:
            raise UsageProblem(f"{path} is neither a Python file nor a notebook: pass the folder of your project.")
        too_large = _size_problem(path.suffix, path.stat().st_size)
        if too_large is not None:
            raise UsageProblem(f"{path} is {too_large}, so chirp-migrate treats it as data: split or exclude the file.")
        # Read the neighbouring files, too, because the rewrite must keep all names that these files import from this
        # file.
        beside = sorted(one.name for one in root.iterdir() if one.suffix in _SIZE_LIMITS and _is_regular_file(one))
        is_notebook = path.suffix == ".ipynb"
        return DiscoveredFiles(
            root,
            () if is_notebook else (name,),
            (name,) if is_notebook else (),
            left_out=(),
            context=tuple(one for one in beside if one != name),
            settings=_settings_in(list(root.iterdir()), ""),
        )
    ignored = ignored_paths(root)
    left_out: list[SkippedFile] = []
    context: list[str] = []
    found: list[str] = []
    settings: list[str] = []
    for name, vendored in sorted(_walk_folder(root, ignored, left_out, settings)):
        if vendored:
            context.append(name)
            continue
        reason = reason_to_exclude(name)
        if reason is None and not notebooks and name.endswith(".ipynb"):
            reason = "a notebook"
        if reason is None:
            found.append(name)
        else:
            context.append(name)
            left_out.append(SkippedFile(name, reason))
    files = tuple(name for name in found if name.endswith(".py"))
    books = tuple(name for name in found if name.endswith(".ipynb"))
    if not files and not books:
        left = sorted({one.reason for one in left_out})
        why = f" (excluded: {', '.join(left)})" if left else ""
        raise UsageProblem(f"{path} has no Python file to migrate{why}: pass the folder of your project.")
    accounted = tuple(sorted(left_out, key=lambda one: one.path))
    return DiscoveredFiles(root, files, books, accounted, tuple(context), tuple(sorted(settings)))


def _walk_folder(
    root: Path, ignored: frozenset[str], left_out: list[SkippedFile], settings: list[str]
) -> Iterator[tuple[str, bool]]:
    """Yield the path of each file below ``root``, and whether the file is vendored (copied from another project).

    The function adds excluded paths to ``left_out``, and configuration files to ``settings``.
    """
    folders = [("", False)]  # a stack instead of recursive calls, because folders may be nested deeply
    while folders:
        prefix, vendored = folders.pop()
        # Add only the top folder of vendored code to `left_out`, and not the files and folders inside it.
        excluded: list[SkippedFile] = [] if vendored else left_out
        try:
            with os.scandir(root / prefix) as listed:
                entries = list(listed)
        except OSError as error:
            excluded.append(SkippedFile(prefix.rstrip("/") or ".", f"cannot be listed: {error.strerror}"))
            continue
        if not vendored:
            settings += (one for one in _settings_in(entries, prefix) if one not in ignored)
        for entry in entries:
            relative = prefix + entry.name
            if _is_folder(entry):
                reason = _why_folder_is_excluded(entry, at_root=not prefix)
                if reason is None and f"{relative}/" in ignored:
                    reason = "ignored by git"
                if reason is None:
                    theirs = vendored or _is_vendored(entry)
                    if theirs and not vendored:
                        excluded.append(
                            SkippedFile(relative, "vendored code; to migrate this code, pass its path to the command")
                        )
                    folders.append((f"{relative}/", theirs))
            elif entry.name.endswith((".py", ".ipynb")):
                reason = "ignored by git" if relative in ignored else _why_file_is_excluded(entry, relative)
                if reason is None and _was_added_by_apply(root / relative, relative):
                    reason = "added by an earlier apply"
                if reason is None:
                    yield relative, vendored
            else:
                continue
            if reason is not None:
                excluded.append(SkippedFile(relative, reason))


def _settings_in(entries: Sequence[os.DirEntry[str] | Path], prefix: str) -> tuple[str, ...]:
    """Return the paths of the configuration files in a folder, except links and files above 256 KiB.

    The result is empty if the folder has more than 200 configuration files, because the files are then probably data.
    """
    named = [entry for entry in entries if entry.name.endswith(_SETTINGS)]
    if len(named) > _MOST_SETTINGS:
        return ()
    return tuple(f"{prefix}{entry.name}" for entry in named if _is_small(entry))


def _is_small(entry: os.DirEntry[str] | Path) -> bool:
    try:
        found = entry.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and not entry.is_symlink() and found.st_size <= _LARGEST_SETTINGS_BYTES


def _is_regular_file(path: Path) -> bool:
    """Return whether ``path`` is a regular file (not a link) within the size limit for its suffix."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and _size_problem(path.suffix, found.st_size) is None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, or a link to a folder."""
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False


def _why_folder_is_excluded(folder: os.DirEntry[str], *, at_root: bool) -> str | None:
    if folder.is_symlink():
        return "a link to a folder"
    if folder.name in _FOLDERS:
        return _FOLDERS[folder.name]
    if folder.name.endswith(".egg-info"):
        return "build output"
    if os.path.exists(f"{folder.path}/sg_execution_times.rst"):  # noqa: PTH110 - for speed
        return "generated by sphinx-gallery"
    if os.path.exists(f"{folder.path}/pyvenv.cfg") or os.path.isdir(f"{folder.path}/conda-meta"):  # noqa: PTH110,PTH112 - for speed
        return "a virtual environment"
    if at_root and folder.name == "chirpid_patch":
        return "the vendored runtime"
    return None


def _is_vendored(folder: os.DirEntry[str]) -> bool:
    name = folder.name.lower()
    return name in _VENDORED or (name in _PERHAPS_VENDORED and _has_licence_or_packaging(folder.path, levels=2))


def _has_licence_or_packaging(folder: str, levels: int) -> bool:
    """Return whether a folder contains a licence or packaging file.

    With ``levels`` 1, the function searches only the folder itself. With ``levels`` 2, the function also searches the
    direct subfolders, and so on.
    """
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
        below = [entry.path for entry in entries if levels > 1 and entry.is_dir(follow_symlinks=False)]
    except OSError:  # `_walk_folder` lists the folder as well, and reports the error
        return False
    return any(_BROUGHT_ALONG.fullmatch(entry.name) for entry in entries) or any(
        _has_licence_or_packaging(path, levels - 1) for path in below
    )


def _was_added_by_apply(path: Path, relative: str) -> bool:
    """Return whether an earlier ``apply`` added the file ``path``.

    The earlier run may have been on the searched folder or on one of its subfolders. ``relative`` is the path of the
    file relative to the searched folder.
    """
    place = next((one for one in SCAFFOLD_PATHS if f"/{relative}".endswith(f"/{one}")), None)
    try:
        return place is not None and is_scaffold_file(place, path.read_bytes())
    except OSError:  # the code that later reads the file reports the error
        return False


def _why_file_is_excluded(entry: os.DirEntry[str], relative: str) -> str | None:
    try:
        found = entry.stat()
    except OSError:  # dangling links and link loops
        return "a link to a missing target"
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    path = Path(entry.path)
    if entry.is_symlink():
        root = path.parents[relative.count("/")]
        real = path.resolve()
        if not real.is_relative_to(root):
            return "a link to a place outside the folder"
        if real.suffix == path.suffix:
            return f"a link to {real.relative_to(root).as_posix()}"
    return _size_problem(path.suffix, found.st_size)


def _size_problem(suffix: str, size: int) -> str | None:
    limit = _SIZE_LIMITS[suffix]
    return f"larger than {limit // 1024**2} MiB" if size > limit else None
