"""Answer questions about the names in a whole project, from an index of the code in each file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import PurePosixPath

from chirp_migrate.syntax.file_index import FUNCTION_PARTS, FileIndex, may_replace
from chirp_migrate.syntax.import_table import absolute_name
from chirp_migrate.syntax.module import Module, module_name, package_name
from chirp_migrate.syntax.name_resolution import NameResolution
from chirp_migrate.syntax.project_files import answered_once

_TEST = re.compile(r"(?:.*/)?(?:tests/.*|test_[^/]*|[^/]*_test|conftest)\.(?:py|ipynb)", re.DOTALL)
#: Largest number of characters that a search for an assigned name reads backwards.
_LONGEST_NAME = 200
#: The text between two words of a statement. ``_BEHIND`` is this text after a word that may be in brackets or quotes.
_GAP = r"[\s\\]*"
_BEHIND = r"""[\s\\)\]"']*(?:#[^\n]*\n[\s\\)\]"']*){0,20}"""
_BLANK = re.compile(r"[\s\\]+")
#: The beginning of ``from source import``, without the names. Words are taken as a whole, so the search is linear.
_FROM = re.compile(r"from\b(?<!\wfrom)((?:[.\s\\]|\b(?!(?:from|import)\b)\w+\b)+)\bimport\b")
#: Code that may read names of its own module by computed strings, as in ``globals()[name]``.
_READS_COMPUTED_NAMES = r"(?<![\w.])(?:globals|locals|vars|dir|eval|exec)\s*\("
#: Code that may run a file in its own namespace.
_RUNS_FILES = re.compile(r"%run\b|%load\b|\b(?:exec|run_path)\b")
_ASSIGNED = re.compile(r"\b(\w+)\s*:?=\s*(?:\w+\.)*$")
#: Text after ``import``: names up to the closing bracket, or to the end of the statement. The text ends at the next
#: ``import``, and the number of comments is limited, so that the search is linear.
_PART = r"(?:[^()#\w]|\b(?!import\b)\w+\b)*"
_IMPORTED = re.compile(
    rf"{_GAP}\({_PART}(?:#[^\n]*(?!.){_PART}){{0,300}}\)|(?:[*,. \t\f]|\\\r?\n?|\b(?!import\b)\w+\b)*"
)


class Project(NameResolution):
    """A backend: its files, the names that they import from each other, and the index of the code in each file."""

    def index(self, path: str) -> FileIndex:
        """Return the index of the code in a file or notebook."""
        return self._fact(path, FileIndex)

    def indexes(self, *words: str) -> Iterator[FileIndex]:
        """Return the indexes of the files in which one of ``words`` is a whole word."""
        return map(self.index, self.paths_containing(*words))

    @answered_once
    def aliases(self, name: str) -> set[str]:
        """Return other names under which modules of the backend import ``name``, and aliases of these aliases."""
        return self._renamed_or_inheriting({name}, inheriting=False) - {name}

    @answered_once
    def descendants(self, *bases: str) -> frozenset[str]:
        """Return names of classes that inherit, directly or indirectly, from a class with one of ``bases`` in its name.

        Names are compared by spelling only. The result also includes aliases under which files import these classes and
        ``bases``.
        """
        words = self._words.containing(*bases)
        inherited = {word for index in self.indexes(*words) for word in words & index.bases.keys()}
        names = self._renamed_or_inheriting({*bases, *inherited})
        return frozenset(name for name in names if not any(base in name for base in bases))

    def _renamed_or_inheriting(self, names: set[str], *, inheriting: bool = True) -> set[str]:
        """Return ``names``, and the aliases of these names.

        With ``inheriting``, the result also contains subclasses of the classes with these names, and their aliases.
        """
        found, new = set(names), set(names)
        while new:
            indexes = list(self.indexes(*new))
            more = {alias for index in indexes for alias, of in index.bound.items() if not of.isdisjoint(new)}
            if inheriting:
                more.update(*(index.bases[base] for index in indexes for base in index.bases.keys() & new))
            new = more - found
            found |= new
        return found

    def subclasses(self, *bases: str, parameters: bool = False) -> set[str]:
        """Return the names of classes that directly inherit from a class called like one of ``bases``.

        Args:
            bases: names of classes, without the names of their modules.
            parameters: whether words inside square brackets count, too.
        """
        tables = [
            table for index in self.indexes(*bases) for table in (index.bases, index.parameters if parameters else {})
        ]
        return {title for table in tables for base in bases for title in table.get(base, ())}

    def imported_elsewhere(self, module: Module, name: str) -> bool:
        """Return whether another file or notebook of the backend may import or read ``name`` from ``module``.

        An ``import *`` counts as an import of every name that the text of the importing file contains. An ``import *``
        also counts if the importing file may read computed names, as with ``globals()``, or if other files import the
        name from the importing file. The result may be True although no file reads the name, because ``x.name`` counts
        for any ``x`` with the name of the module.
        """
        return self._may_be_imported(module.path, name, {module.path}) or self._is_run_with(module.path, name)

    def _is_run_with(self, path: str, name: str) -> bool:
        """Return whether a file or notebook with the word ``name`` may run the file ``path`` in its own namespace."""
        stem = re.escape(PurePosixPath(path).stem)
        file = re.compile(rf"\b{stem}\.py\b|%run\b[^\r\n]*\b{stem}\b")
        # The text of a notebook in `_texts` has no magics.
        books = ((other, text) for other, text in self._raw_notebooks.items() if name in text)
        return any(
            other != path and _RUNS_FILES.search(text) and file.search(text)
            for other, text in chain(self.matching(_RUNS_FILES, name), books)
        )

    def _may_be_imported(self, path: str, name: str, seen: set[str]) -> bool:
        """Return whether another file may import or read ``name`` from the module at ``path``.

        Adds the files with an ``import *`` from the module to ``seen``.
        """
        readers = self._importing_files(path)
        if name in readers:
            return True
        importers = readers.get("*", set()) - seen
        seen |= importers
        word = re.compile(rf"\b{re.escape(name)}\b|{_READS_COMPUTED_NAMES}")
        return any(
            word.search(self._texts.get(one) or self._notebooks.get(one, "")) or self._may_be_imported(one, name, seen)
            for one in importers
        )

    @answered_once
    def _importing_files(self, path: str) -> dict[str, set[str]]:
        """Return the words that other files import or read from a module.

        The value of each word contains the paths of the files that import or read the word.
        """
        found: dict[str, set[str]] = defaultdict(set)
        full = module_name(path) or self._name
        last = full.rpartition(".")[2]
        for reader, _ in self._other_texts(path, last) if last else ():
            imports = self._fact(reader, _imports_in)
            words = {word for written, names in imports if _may_name(written, full) for word in names}
            for word in words.union(self._fact(reader, _attributes_read, last)):
                found[word].add(reader)
        if path.endswith("__init__.py"):
            folder = path.removesuffix("__init__.py")
            for inside in chain(self._texts, self._notebooks):
                if inside != path and inside.startswith(folder):
                    for written, names in self._fact(inside, _imports_in):
                        if written.endswith(".") and absolute_name(written, package_name(inside)) == module_name(path):
                            for word in names:
                                found[word].add(inside)
        return dict(found)

    def is_replaced(self, module: str, name: str) -> bool:
        """Return whether a file patches ``name`` in a module, as tests do.

        Args:
            module: last part of the module's name.
            name: a name in that module.
        """
        return not self._replaced_names().isdisjoint({(module, name), ("", name), (module, "")})

    def is_changed(self, title: str) -> bool:
        """Return whether a file patches a method or attribute of the class called ``title``.

        A file also counts if it mentions the class, and assigns ``__defaults__``, ``__kwdefaults__`` or ``__code__`` of
        any function.
        """
        indexes = list(self.indexes(title))
        return (
            any(owner == title for owner, _ in self._replaced_names())
            or any(one.owner == title for index in indexes for stores in index.stores.values() for one in stores)
            or any(part in index.stores for index in indexes for part in FUNCTION_PARTS)
        )

    @answered_once
    def _replaced_names(self) -> frozenset[tuple[str, str]]:
        """Return the patched names, each with the last part of its module's name; "" stands for any module."""
        paths = (path for path, text in self._other_texts("", "") if may_replace(text))
        return frozenset(
            (module, name)
            for module, name, variable in chain.from_iterable(self.index(one).replaced for one in paths)
            if not variable or self.reads_variable(variable)
        )

    @answered_once
    def reads_variable(self, name: str) -> bool:
        """Return whether any code of the project may read a variable called ``name``."""
        return any(self.index(path).reads_name(name) for path, _ in self._other_texts("", name))

    def is_named_elsewhere(self, pattern: str, word: str, besides: str, *, settings: bool = False) -> bool:
        """Return whether a regular expression matches in a file or notebook other than ``besides``.

        Args:
            pattern: the regular expression.
            word: whole word that every match contains.
            besides: path of the file that is not searched.
            settings: whether to search configuration files and Cython sources, too.
        """
        searched = re.compile(pattern)
        return any(searched.search(text) for _, text in self._other_texts(besides, word)) or (
            settings and self.settings_match(searched)
        )


def is_test_file(path: str) -> bool:
    """Return whether a file belongs to the project's tests, by pytest's naming or by the folder ``tests``."""
    return _TEST.fullmatch(path) is not None


def _imports_in(text: str) -> list[tuple[str, list[str]]]:
    """Return the source of each ``from source import`` in a text, with the words after ``import``."""
    return [(_BLANK.sub("", one[1]), _names_imported(text, one.end())) for one in _FROM.finditer(text)]


def _attributes_read(text: str, module: str) -> set[str]:
    """Return the words that a text reads as attributes of the module with this last name."""
    return {word for name in {module, *_module_aliases(module, text)} for word in _attributes_of(name, text)}


def _names_imported(text: str, start: int) -> list[str]:
    """Return the words after ``from … import``; ``start`` is the offset after ``import``.

    Without words, as in the string ``"from data import %s"``, code may import any name, as with ``*``.
    """
    clause = _IMPORTED.match(text, start)
    return re.findall(r"\w+|\*", clause.group() if clause is not None else "") or ["*"]


def _module_aliases(module: str, text: str) -> Iterator[str]:
    """Yield names under which a text may use a module, other than the last part of the module's name."""
    word = rf"{re.escape(module)}\b(?<!\w{re.escape(module)})"
    yield from re.findall(rf"{word}{_GAP}\bas\b{_GAP}(\w+)", text)
    for mention in re.finditer(rf"{word}(?!{_GAP}[.(\[])", text):
        line = text.rfind("\n", max(0, mention.start() - _LONGEST_NAME), mention.start()) + 1
        start = max(line, mention.start() - _LONGEST_NAME)
        if (target := _ASSIGNED.search(text, start, mention.start())) is not None:
            yield target.group(1)


def _attributes_of(name: str, text: str) -> Iterator[str]:
    """Yield the attributes of ``name`` in a text: words after a dot, and strings in calls such as ``getattr``.

    The name may be in brackets or quotes.
    """
    word = rf"{re.escape(name)}\b(?<!\w{re.escape(name)})"
    after = rf"{word}(?:{_BEHIND}\.{_GAP}(\w+)|{_GAP},{_GAP}[\"'](\w+))"
    yield from (first or second for first, second in re.findall(after, text))


def _may_name(written: str, name: str) -> bool:
    """Return whether ``import written`` may find the module ``name``. Either name may lack leading packages."""
    parts, own = written.lstrip(".").split("."), name.split(".")
    shared = min(len(parts), len(own))
    return parts[-shared:] == own[-shared:]
