"""Add the runtime to the dependencies of a migrated project, because the migrated code imports ``chirpid_patch``.

The module adds an entry for ``chirpid-patch`` to the first list of dependencies that contains torch. The module
searches the lists in this order: the main dependencies of the package, the extras of the package, a requirements file.
If a requirements file names all packages of the extended list, this file gets the entry, too. If no list contains
torch, and the project is not a package, the entry goes into the requirements file of the project, if the project has
one. If only the examples of a package import the runtime, no list changes. The edits keep the comments, order, quotes
and newlines of a file.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chirp_migrate.additions.requirement_pins import (
    distribution_name,
    nested_table,
    read_requirements_text,
    requirement_files,
)
from chirp_migrate.additions.setup_script import append_dependency_entry, dependency_lists, remove_dependency_entry
from chirp_migrate.plans.plan import FilePlan
from chirp_migrate.source.files import read_file
from chirp_migrate.source.toml import parse_toml

_DISTRIBUTION = "chirpid-patch"
_COMMENT = "  # provides chirpid_patch, the migrated data loading"
#: Pattern of the entry that ``apply`` adds to a list of dependencies. In a requirements file, a comment follows the
#: entry.
_ADDED = re.compile(rf"chirpid-patch>=\d+\.\d+,<\d+(\.\d+)?({_COMMENT})?")

#: Names of requirements files in which projects list their main dependencies, the most common name first.
_REQUIREMENTS = (
    "requirements.txt",
    "requirements/base.txt",
    "requirements/requirements.txt",
    "requirements/common.txt",
    "requirements/main.txt",
)
#: Names of top-level folders, such as ``examples``, that are not installed with the package of a project.
_NOT_INSTALLED = re.compile(r"(benchmark|demo|doc|example|exercise|notebook|script|test|tutorial)s?")
_PYPROJECT, _SETUP, _SETUP_SCRIPT = "pyproject.toml", "setup.cfg", "setup.py"
#: Table of ``pyproject.toml`` with the extras of the package.
_EXTRAS = ("project", "optional-dependencies")
_IMPORT = re.compile(rb"\b(?:from|import)\s+chirpid_patch\b")


def runtime_requirement(version: str) -> str:
    """Return the requirement for the runtime that matches ``version``, which is the version of chirp-migrate.

    For ``0.1.0``, the requirement is ``chirpid-patch>=0.1,<0.2``. For ``1.2.3``, the requirement is
    ``chirpid-patch>=1.2,<2``.
    """
    major, minor = map(int, version.split(".")[:2])
    return f"{_DISTRIBUTION}>={major}.{minor},<{major + 1 if major else f'0.{minor + 1}'}"


def imports_runtime(content: bytes) -> bool:
    """Return whether a Python file or notebook imports the runtime."""
    return _IMPORT.search(content) is not None


def any_file_needs_runtime(files: Iterable[FilePlan]) -> bool:
    """Return whether the new text of one of the ``files`` imports the runtime.

    The files of a copy of the runtime do not count, although these files import each other. Files with lists of
    dependencies do not count either.
    """
    return any(imports_runtime(file.after) for file in files if file.note not in ("dependency", "vendor"))


def has_dependency_file(root: Path) -> bool:
    """Return whether ``root`` has a file in which projects list dependencies, such as ``pyproject.toml``."""
    return any((root / name).is_file() for name in (*_REQUIREMENTS, _PYPROJECT, _SETUP))


def folders_outside_package(root: Path, paths: Iterable[str]) -> list[str]:
    """Return the top-level folders of ``paths``, such as ``examples``, if all ``paths`` are outside of the package.

    Args:
        root: folder of the project.
        paths: files of the project, relative to ``root``.

    Returns:
        The names of the folders; an empty list if the project is not a package, or if a path may be inside the package.
    """
    tops = [one.partition("/")[0] for one in paths]
    is_outside = all(_NOT_INSTALLED.fullmatch(top) and not (root / top / "__init__.py").exists() for top in tops)
    return sorted(set(tops)) if is_outside and _is_package(root) else []


def dependency_plan(root: Path, version: str, line_length: int | None = None) -> tuple[list[FilePlan], str | None]:
    """Return the edits that add the runtime to the dependencies of a project, and a note for the user.

    An edit extends the first list that contains torch, in this order:

    * ``dependencies`` under ``[project]`` in ``pyproject.toml``
    * ``install_requires`` in ``setup.cfg``
    * ``install_requires`` in ``setup.py``
    * the extras in ``pyproject.toml`` or in ``setup.py``, if no list of main dependencies contains torch
    * ``requirements.txt``, ``requirements/base.txt`` and similar files

    If a requirements file also names all packages of the extended list, a second edit adds the runtime to the
    requirements file, too. If no list contains torch and the project is not a package, the edit extends the
    requirements file of the project, if the project has one. A list that already contains the runtime does not change.

    Args:
        root: folder of the project.
        version: version of this program.
        line_length: the longest line that the project's settings permit, in columns; None without such a setting.

    Returns:
        The edits, and a sentence for the user. The list of edits is empty if no file changes. The sentence is None if
        the user need not do anything.
    """
    wanted = runtime_requirement(version)
    lists, others = _lists_with_torch(root, line_length)
    if not lists:
        if not others:
            return [], (
                f"No dependency list of the project names torch, so no list was changed. Install {wanted} where the "
                "migrated files run, or use --vendor."
            )
        whom = f"{' and '.join(others)}, which {'names' if len(others) == 1 else 'name'} torch"
        return [], f"The changed files import chirpid_patch: add {wanted} to {whom}, or use --vendor."
    first, *more = lists
    others = [*dict.fromkeys(one.path for one in more if one.path != first.path), *others]
    by_hand = f"The changed files import chirpid_patch: add {wanted} to {{}}, or use --vendor."
    try:
        plans = _edit_list(root, first, wanted)
        for one in more if plans else ():
            if one.path in _REQUIREMENTS and first.names <= one.names:
                plans += _edit_list(root, one, wanted)
                others.remove(one.path)
    except _NotEditedError as error:
        return [], f"{error}. {by_hand.format(' and '.join(others or [first.path]))}"
    if others:
        whom = f"{' and '.join(others)} also {'names' if len(others) == 1 else 'name'} torch"
        return (
            plans,
            f"{whom}, as {first.path} does. If you install from {' or '.join(others)}, also add {wanted} to that file.",
        )
    return plans, None


_Edit = Callable[[str, str], str]


@dataclass(frozen=True)
class _TorchList:
    """A list of dependencies that contains torch.

    The fields are the path of the file, the function that adds an entry to the list, and the names of the entries.
    """

    path: str
    edit: _Edit
    names: frozenset[str]


class _NotEditedError(Exception):
    """Raised if a file cannot be edited. The message contains the reason."""


def _edit_list(root: Path, one: _TorchList, wanted: str) -> list[FilePlan]:
    """Return the edit that adds ``wanted`` to a list; an empty list if the file does not change.

    Raises:
        _NotEditedError: the file cannot be edited.
    """
    if not (root / one.path).resolve().is_relative_to(root.resolve()):
        raise _NotEditedError(f"{one.path} was not changed, because it is a link to a place outside the project")
    try:
        before = read_file(root / one.path)
        after = one.edit(before.decode("utf-8"), wanted).encode("utf-8")
    except OSError as error:
        raise _NotEditedError(f"{one.path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise _NotEditedError(f"{one.path} is not UTF-8 and was not changed") from error
    except ValueError as error:
        raise _NotEditedError(f"{one.path} was not changed: {error}") from error
    return [] if after == before else [FilePlan(one.path, before, after, "dependency")]


def _lists_with_torch(root: Path, line_length: int | None) -> tuple[list[_TorchList], list[str]]:
    """Return the lists with torch that this module can extend, and the paths of all other files with such a list.

    The lists are in the order of :func:`dependency_plan`. The paths do not contain files that already require the
    runtime. If no file lists torch, and the project is not a package, the only list is the requirements file of the
    project, if the project has one.
    """
    found: list[_TorchList] = []
    others: list[str] = []
    for path, read, edit in (
        (_PYPROJECT, _project_dependencies, add_to_project_dependencies),
        (_SETUP, _install_requires, add_to_install_requires),
    ):
        entries = _read_dependencies(root / path, read)
        if entries is not None and _concerns(entries) and (not found or _lacks_runtime(entries)):
            found.append(_TorchList(path, edit, _names(entries)))
    script = read_requirements_text(root / _SETUP_SCRIPT)
    main_of_script, *extras_of_script = dependency_lists(script)
    poetry = _poetry_dependencies(root)
    has_main = bool(found) or _concerns(poetry) or _concerns(main_of_script)
    extras = _read_dependencies(root / _PYPROJECT, _extra_dependencies)
    if extras is not None and _concerns(extras) and not has_main:
        found.append(_TorchList(_PYPROJECT, add_to_torch_extras, _names(extras)))
    if _concerns(poetry) and _lacks_runtime(poetry):
        others.append(_PYPROJECT)
    lists = [one for one in ([main_of_script] if has_main else extras_of_script) if _concerns(one)]
    if any(not found or _lacks_runtime(one) for one in lists):
        if _can_extend_script(script):
            edit = partial(add_to_setup_script, line_length=line_length)
            found.append(_TorchList(_SETUP_SCRIPT, edit, _names(one for entries in lists for one in entries)))
        elif any(map(_lacks_runtime, lists)):
            others.append(_SETUP_SCRIPT)
    named = [path.relative_to(root).as_posix() for path in requirement_files(root)]
    common = [one for one in _REQUIREMENTS if one in named]
    is_first = True
    for path in (*common, *(one for one in named if one not in common)):
        lines = read_requirements_text(root / path).splitlines()
        if not _concerns(lines):
            continue
        if path in common and is_first and (not found or _lacks_runtime(lines)):
            found.append(_TorchList(path, add_to_requirements, _names(lines)))
        elif _lacks_runtime(lines):
            others.append(path)
        is_first = False
    if common and not found and not others and not _is_package(root):
        found.append(_TorchList(common[0], add_to_requirements, frozenset()))
    return found, list(dict.fromkeys(others))


def _names(entries: Iterable[Any]) -> frozenset[str]:
    """Return the names of the distributions in a list of dependencies, without versions and extras."""
    return frozenset(distribution_name(one) for one in entries if isinstance(one, str)) - {""}


def _is_package(root: Path) -> bool:
    """Return whether the project is a package that other projects may install."""
    if (root / _SETUP).is_file() or (root / _SETUP_SCRIPT).is_file():
        return True
    try:
        content = _parse_toml(read_requirements_text(root / _PYPROJECT))
    except ValueError:
        return True
    return "project" in content or "poetry" in content.get("tool", {})


def _concerns(entries: Iterable[Any]) -> bool:
    """Return whether a list of dependencies contains torch or the runtime."""
    return not _names(entries).isdisjoint(("torch", _DISTRIBUTION))


def _lacks_runtime(entries: Iterable[Any]) -> bool:
    """Return whether a list of dependencies does not contain the runtime."""
    return _DISTRIBUTION not in _names(entries)


def _poetry_dependencies(root: Path) -> list[Any]:
    """Return the names in the table ``[tool.poetry.dependencies]`` of ``pyproject.toml``."""
    try:
        content = _parse_toml(read_requirements_text(root / _PYPROJECT))
    except ValueError:
        return []
    return list(nested_table(content, "tool", "poetry", "dependencies"))


def _can_extend_script(text: str) -> bool:
    try:
        add_to_setup_script(text, _DISTRIBUTION)
    except ValueError:
        return False
    return True


def dependency_removal(root: Path) -> list[FilePlan]:
    """Return the edits that remove the dependency that an earlier ``apply`` added."""
    removals = []
    edits: dict[str, Callable[[str], str]] = dict.fromkeys((*_REQUIREMENTS, _SETUP), remove_from_requirements)
    edits |= {_PYPROJECT: remove_from_pyproject, _SETUP_SCRIPT: remove_from_setup_script}
    for name, without in edits.items():
        try:
            before = read_file(root / name)
            after = without(before.decode("utf-8")).encode("utf-8")
        except (OSError, ValueError):
            continue
        if after != before:
            removals.append(FilePlan(name, before, after, "dependency"))
    return removals


def remove_from_requirements(text: str) -> str:
    """Return a requirements file or ``setup.cfg`` without the lines that ``apply`` added."""
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if not _ADDED.fullmatch(line.strip())]
    after = "".join(kept)
    return after if text.endswith(("\n", "\r")) or len(kept) == len(lines) else after.rstrip("\r\n")


def remove_from_pyproject(text: str) -> str:
    """Return a ``pyproject.toml`` without the dependencies that ``apply`` added.

    The text is unchanged if the removal would also change any other setting in the file.
    """
    expected: Any = _parse_toml(text)
    lists = [
        (table, name)
        for table, name, entries in _toml_lists(expected)
        if any(isinstance(one, str) and _ADDED.fullmatch(one) for one in entries)
    ]
    if not lists:
        return text
    import tomlkit.exceptions

    try:
        whole: Any = tomlkit.parse(text)
        for content in (expected, whole):
            for table, name in lists:
                _remove_added(_inside(content, table)[name])
        after = tomlkit.dumps(whole)
    except tomlkit.exceptions.TOMLKitError:
        return text
    return after if _parse_toml(after) == expected else text


def remove_from_setup_script(text: str) -> str:
    """Return a ``setup.py`` without the entries that ``apply`` added."""
    return remove_dependency_entry(text, lambda entry: _ADDED.fullmatch(entry) is not None)


def _remove_added(entries: Any) -> None:
    """Remove from a list the entries in the form that ``apply`` adds, such as ``chirpid-patch>=0.1,<0.2``."""
    for place in reversed(range(len(entries))):
        if isinstance(entries[place], str) and _ADDED.fullmatch(entries[place]):
            del entries[place]


def _toml_lists(content: Any) -> Iterator[tuple[tuple[str, ...], str, list[Any]]]:
    """Yield (table, name, entries) of each list of dependencies under ``[project]``."""
    main = {"dependencies": nested_table(content, "project").get("dependencies")}
    for table, lists in ((("project",), main), (_EXTRAS, nested_table(content, *_EXTRAS))):
        yield from ((table, name, entries) for name, entries in lists.items() if isinstance(entries, list))


def add_to_requirements(text: str, requirement: str) -> str:
    """Return a requirements file with a new line for ``requirement``, unless the file already requires the runtime.

    The file keeps its style of newlines. If the file has no newline at its end, the result has none either.

    Raises:
        ValueError: the file pins hashes, so a line without a hash would be invalid; or the last line of the file ends
            with a backslash.
    """
    body = text.removeprefix("\ufeff")
    if not _lacks_runtime(body.splitlines()):
        return text
    if re.search(r"(?m)^[^#\n]*--(?:hash=|require-hashes)", body):
        raise ValueError("the file pins packages by hash (`--hash`), so a new line without a hash would be invalid")
    if re.search(r"\\\s*\Z", body):
        raise ValueError("the last line of the file ends with a backslash, so an added line would continue that line")
    newline, line = "\r\n" if "\r\n" in body else "\n", requirement + _COMMENT
    if not body:
        return text + line + newline
    return text + line + newline if body.endswith("\n") else text + newline + line


def add_to_project_dependencies(text: str, requirement: str) -> str:
    """Return a ``pyproject.toml`` with ``requirement`` as the last entry of ``dependencies`` under ``[project]``.

    The text is unchanged if the dependencies already contain the runtime.

    Raises:
        ValueError: the text is not TOML, the list does not exist, or the edit would also change other parts of the
            text.
    """
    listed = _project_dependencies(text)
    if listed is None:
        raise ValueError("the file has no list `dependencies` under [project]")
    return _add_entry(text, requirement, ("project",), *(["dependencies"] if _lacks_runtime(listed) else []))


def _add_entry(text: str, wanted: str, table: Sequence[str], *names: str) -> str:
    """Return a ``pyproject.toml`` with the new last entry ``wanted`` in each of the lists ``names`` of ``table``.

    Raises:
        ValueError: the text is not TOML, or the edit would also change other parts of the text.
    """
    if not names:
        return text
    import tomlkit.exceptions  # imported here, because most runs do not need it

    expected: Any = _parse_toml(text)
    try:
        whole: Any = tomlkit.parse(text)
        kept = tomlkit.dumps(whole)
        for content in (expected, whole):
            for name in names:
                entries = _inside(content, table)[name]
                entries.append(wanted if content is expected else tomlkit.string(wanted, literal=_in_single(entries)))
        after = tomlkit.dumps(whole)
    except tomlkit.exceptions.TOMLKitError as error:
        raise ValueError(f"chirp-migrate cannot edit the file ({error})") from None
    if kept != text or _parse_toml(after) != expected:
        raise ValueError("the list of dependencies has a form that chirp-migrate cannot parse")
    return after


def _in_single(entries: Any) -> bool:
    """Return whether most entries of a TOML list are in single quotes. Entries that contain a quote do not count."""
    strings: list[Any] = [one for one in entries if isinstance(one, str) and not re.search("[\"']", one)]
    quotes = [one.as_string()[0] for one in strings]
    return 2 * quotes.count("'") > len(quotes)


def _inside(content: Any, table: Sequence[str]) -> Any:
    for key in table:
        content = content[key]
    return content


def add_to_torch_extras(text: str, requirement: str) -> str:
    """Return a ``pyproject.toml`` in which each extra with torch has ``requirement`` as its last entry.

    Extras that already contain the runtime do not change.

    Raises:
        ValueError: the text is not TOML, or the edit would also change other parts of the text.
    """
    lists = _toml_lists(_parse_toml(text))
    names = [name for table, name, entries in lists if table == _EXTRAS and _needs_runtime(entries)]
    return _add_entry(text, requirement, _EXTRAS, *names)


def add_to_install_requires(text: str, requirement: str) -> str:
    """Return a ``setup.cfg`` with ``requirement`` as the last entry of ``install_requires``.

    The text is unchanged if the list already contains the runtime.

    Raises:
        ValueError: the text is not an INI file, the list does not exist, or the list is in another file, as in
            ``install_requires = file: requirements.txt``.
    """
    before = _install_requires(text)
    if before is None:
        raise ValueError("the file has no list `install_requires` under [options]")
    if not _lacks_runtime(before):
        return text
    if before and before[0].startswith("file:"):
        raise ValueError("`install_requires` names another file")
    lines = text.splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if re.match(r"install_requires[ \t]*[=:]", line))
    last = first
    for number in range(first + 1, len(lines)):
        if lines[number].strip() and not lines[number][0].isspace() and not lines[number].startswith(("#", ";")):
            break
        if lines[number].strip() and lines[number][0].isspace():
            last = number
    indent = "    " if last == first else re.match(r"[ \t]*", lines[last]).group()  # type: ignore[union-attr]
    newline = "\r\n" if "\r\n" in text else "\n"
    ended = lines[last] if lines[last].endswith("\n") else lines[last] + newline
    lines[last] = f"{ended}{indent}{requirement}{newline}"
    after = "".join(lines)
    if _install_requires(after) != [*before, requirement]:
        raise ValueError("the list of dependencies has a form that chirp-migrate cannot parse")
    return after


def add_to_setup_script(text: str, requirement: str, line_length: int | None = None) -> str:
    """Return a ``setup.py`` with ``requirement`` as last entry of ``install_requires``, or of each extra with torch.

    The extras change only if ``install_requires`` contains neither torch nor the runtime. Lists that already contain
    the runtime do not change.

    Args:
        text: the script.
        requirement: the requirement to add, without quotes.
        line_length: the longest permitted line, in columns. For None, the limit is the length of the longest line of
            the script, but at least 88 and at most 120.

    Raises:
        ValueError: the dependency list that contains torch is not a plain literal, or code other than the call of
            ``setup`` uses the list.
    """

    def lacking(text: str) -> bool:
        """Return whether ``install_requires``, or an extra if extras may change, has torch but not the runtime."""
        return any(map(_needs_runtime, dependency_lists(text)[: 1 if is_main else None]))

    is_main = _concerns(dependency_lists(text)[0])
    if not lacking(text):
        return text
    longest = line_length or min(max(88, *map(len, text.splitlines())), 120)
    after = append_dependency_entry(text, requirement, _needs_runtime, is_main=is_main, line_length=longest)
    if lacking(after):
        raise ValueError(
            "a dependency list that contains torch is not a plain list of strings, or code other than the call of "
            "`setup` uses the list"
        )
    return after


def _needs_runtime(entries: Sequence[Any]) -> bool:
    """Return whether a list of dependencies contains torch but not the runtime."""
    return _concerns(entries) and _lacks_runtime(entries)


def _install_requires(text: str) -> list[Any] | None:
    """Return the entries of ``install_requires`` in a ``setup.cfg``; None without such a list."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(f"the file cannot be read ({error.message})") from None
    listed = parser.get("options", "install_requires", fallback=None)
    return None if listed is None else [line.strip() for line in listed.splitlines() if line.strip()]


def _project_dependencies(text: str) -> list[Any] | None:
    """Return the entries of ``dependencies`` under ``[project]`` in a ``pyproject.toml``.

    Without this list, the result is None.
    """
    lists = (entries for table, _, entries in _toml_lists(_parse_toml(text)) if table != _EXTRAS)
    return next(lists, None)


def _extra_dependencies(text: str) -> list[Any]:
    """Return the entries of all extras of a ``pyproject.toml``."""
    return [one for table, _, entries in _toml_lists(_parse_toml(text)) if table == _EXTRAS for one in entries]


def _read_dependencies(file: Path, read: Callable[[str], list[Any] | None]) -> list[Any] | None:
    """Return the dependencies that ``read`` finds in the text of a file.

    The result is None for a missing or unreadable file, or a file without a list.
    """
    try:
        return read(read_file(file).decode("utf-8"))
    except (OSError, ValueError):
        return None


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        raise ValueError(f"the file is not valid TOML ({error})") from None
