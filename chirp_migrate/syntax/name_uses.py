"""Find the files of a project that import, inherit, patch or read a name. Names are compared by spelling only."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import PurePosixPath

from chirp_migrate.syntax.class_headers import IN_BRACKETS, words_in_class_headers
from chirp_migrate.syntax.import_table import absolute_name
from chirp_migrate.syntax.module import Module, module_name, package_name
from chirp_migrate.syntax.patched_names import names_replaced_in_modules, reads_variable
from chirp_migrate.syntax.project import Project, cached_until_text_changes

#: Attributes of a function that determine what a call does, and a pattern for code that changes such an attribute.
_FUNCTION_PARTS = ("__defaults__", "__kwdefaults__", "__code__")
_FUNCTION_PART = re.compile(
    r"\.\s*(?:__(?:kw)?defaults__|__code__)\s*(?:\[[^\]\n]*\]\s*)?=(?!=)"
    r"|__kwdefaults__\s*\.\s*(?:update|pop|setdefault)\b"
)
#: ``as`` and the alias in an import. After the alias comes a comma, a bracket, a comment or the end of the statement.
_AS = re.compile(r"as\b(?<=[\s\\]as)[\s\\]+(\w+)[ \t\f]*(?=[,)#;\\\r\n]|\Z)")
_LAST_WORD = re.compile(r"\b(\w+)[\s\\]+$")
#: Largest number of characters that a search reads backwards: for the name before ``as``, or for an assigned name.
_LONGEST_NAME = 200
#: The gap between two words of a statement.
_GAP = r"[\s\\]*"
#: The gap, on one line, after a word that may be in brackets or quotes.
_BEHIND = re.compile(r"""(?:[^\S\n]|[\\)\]"'])*""")
#: A line up to the first character that is neither in such a gap nor in a comment.
_CODE_ON_LINE = re.compile(rf"""(?m)^{_BEHIND.pattern}([^\s\\)\]"'#])""")
#: A line up to its first round bracket outside comments.
_BRACKET_ON_LINE = re.compile(r"(?m)^[^()#\n]*([()])")
_LINE_BEFORE_BRACKET = re.compile(r"[^()#\n]*")
_BLANK = re.compile(r"[\s\\]+")
_FROM_DOTS = re.compile(rf"from\b(?<!\wfrom){_GAP}(\.[\s\\.]*)import\b")
#: Code that may read the names of its own module by strings that it computes.
_READS_COMPUTED_NAMES = r"(?<![\w.])(?:globals|locals|vars|dir|eval|exec)\s*\("
#: Code that may run a file in its own namespace.
_RUNS_FILES = re.compile(r"%run\b|%load\b|\b(?:exec|run_path)\b")
_ASSIGNED = re.compile(r"\b(\w+)\s*:?=\s*(?:\w+\.)*$")
_OPENED = re.compile(rf"{_GAP}\(")
#: The rest of a statement without brackets.
_REST = re.compile(r"(?:[^\n\\]|\\\r?\n?)*")
_IMPORTED_NAME = re.compile(r"\w+|\*")
_ATTRIBUTE = re.compile(rf"\.{_GAP}(\w+)")
_QUOTED_ATTRIBUTE = re.compile(rf"{_GAP},{_GAP}[\"'](\w+)")


@cached_until_text_changes
def find_aliases(project: Project, name: str) -> set[str]:
    """Return other names under which modules of the project import ``name``, and aliases of these aliases."""
    direct = _collect_pairs(project, _aliases_in)
    pending, found = [name], {name}
    for one in pending:
        new = direct.get(one, set()) - found
        found |= new
        pending += new
    return found - {name}


@cached_until_text_changes
def _collect_pairs(project: Project, analysis: Callable[[str], Collection[tuple[str, str]]]) -> dict[str, set[str]]:
    """Call ``analysis`` for the text of each file, and merge the returned pairs.

    The result is a dictionary: first part of a pair → set of the second parts of all pairs with this first part.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for path in project.texts:
        for key, value in project.fact(path, analysis):
            found[key].add(value)
    return dict(found)


@cached_until_text_changes
def find_descendants(project: Project, *bases: str) -> frozenset[str]:
    """Return names of classes that inherit, maybe indirectly, from a class with one of ``bases`` in its name.

    Names are compared by spelling only. Names that contain one of ``bases``, such as ``BirdDataset`` for ``Dataset``,
    are omitted, because callers find them by this word. The result also includes other names under which files import
    these classes or ``bases``.
    """
    words = (word for word in _collect_pairs(project, words_in_class_headers) if not word.startswith(IN_BRACKETS))
    pending = [*bases, *(name for name in words if any(base in name for base in bases))]
    names: set[str] = set()
    for name in pending:
        new = (find_subclasses(project, name) | find_aliases(project, name)) - names
        names |= new
        pending += new
    return frozenset(name for name in names if not any(base in name for base in bases))


def find_subclasses(project: Project, *bases: str, with_type_arguments: bool = False) -> set[str]:
    """Return the names of classes with a direct base class whose name is one of ``bases``.

    Args:
        bases: names of the base classes, without the names of their modules.
        with_type_arguments: whether a name in square brackets also counts as a base, as ``Birds`` in ``Base[Birds]``.
    """
    inheriting = _collect_pairs(project, words_in_class_headers)
    words = (*bases, *(IN_BRACKETS + one for one in bases if with_type_arguments))
    return set().union(*(inheriting.get(one, ()) for one in words))


def is_imported_elsewhere(project: Project, module: Module, name: str) -> bool:
    """Return whether another file or notebook of the project may import or read ``name`` from ``module``.

    An ``import *`` counts as an import of every name that the text of the importing file contains. An ``import *``
    also counts if the importing file may read computed names, as with ``globals()``, or if other files import the
    name from the importing file. A file also counts if it contains the word ``name`` and may run the module, as with
    ``%run``. The result may be True by mistake, because ``x.name`` counts for any ``x`` with the name of the module.
    """
    return _may_be_imported(project, module.path, name, {module.path}) or _is_run_with(project, module.path, name)


def _is_run_with(project: Project, path: str, name: str) -> bool:
    """Return whether another file or notebook may run the file at ``path``, for example with ``%run``.

    The names of the file then become names of the other file or notebook. Only files and notebooks with the word
    ``name`` count.
    """
    stem = re.escape(PurePosixPath(path).stem)
    file = re.compile(rf"\b{stem}\.py\b|%run\b[^\r\n]*\b{stem}\b")
    return any(
        other != path and name in text and file.search(text) and (is_raw or re.search(rf"\b{name}\b", text))
        for other, text, is_raw in _texts_that_run_files(project)
    )


@cached_until_text_changes
def _texts_that_run_files(project: Project) -> list[tuple[str, str, bool]]:
    """Return path and text of each file and notebook that may run other files in its own namespace.

    The third item is True for the raw text of a notebook. The text of a notebook in ``texts`` has no magics.
    """
    texts = ((path, text, False) for path, text in project.texts.items())
    raw = ((path, text, True) for path, text in project.raw_notebooks.items())
    return [one for one in chain(texts, raw) if _may_run_files(one[1])]


def _may_be_imported(project: Project, path: str, name: str, seen: set[str]) -> bool:
    """Return whether another file may import or read ``name`` from the module at ``path``.

    The function adds the files with an ``import *`` from the module to ``seen``.
    """
    readers = _importing_files(project, path)
    if name in readers:
        return True
    importers = readers.get("*", set()) - seen
    if not importers:
        return False
    seen |= importers
    word = re.compile(rf"\b{re.escape(name)}\b|{_READS_COMPUTED_NAMES}")
    return any(
        word.search(project.texts.get(one) or project.notebooks.get(one, ""))
        or _may_be_imported(project, one, name, seen)
        for one in importers
    )


@cached_until_text_changes
def _importing_files(project: Project, path: str) -> dict[str, set[str]]:
    """Return the words that other files import or read from a module, each with the paths of these files."""
    found: dict[str, set[str]] = defaultdict(set)
    full = module_name(path) or project.module_paths.root_name
    last = full.rpartition(".")[2]
    for reader, _ in project.other_texts(path, last) if last else ():
        for word in project.fact(reader, _words_read_from, full):
            found[word].add(reader)
    if path.endswith("__init__.py"):
        folder = path.removesuffix("__init__.py")
        for inside in chain(project.texts, project.notebooks):
            if inside != path and inside.startswith(folder):
                for word in project.fact(inside, _words_imported_inside, package_name(inside), module_name(path)):
                    found[word].add(inside)
    return dict(found)


def is_patched(project: Project, module: str, name: str) -> bool:
    """Return whether a file patches ``name`` in a module, as tests do.

    Args:
        module: last part of the module's name. A patch of ``name`` in an unknown module counts, too.
        name: a name in that module. A patch of a computed name in the module counts, too.
    """
    return not _replaced_names(project).isdisjoint({(module, name), ("", name), (module, "")})


def is_class_patched(project: Project, class_name: str) -> bool:
    """Return whether a file patches a method or attribute of the class called ``class_name``, as tests do.

    A file that mentions the class and assigns to ``__defaults__`` or ``__code__`` of any function counts, too, because
    the function may be a method of the class.
    """
    assigned = rf"\b{re.escape(class_name)}\s*\.\s*\w+\s*=(?!=)"
    if any(owner == class_name for owner, _ in _replaced_names(project)) or project.search(assigned, class_name):
        return True
    mentioned = re.compile(rf"\b{re.escape(class_name)}\b")
    return any(mentioned.search(text) for _, text in project.matching(_FUNCTION_PART, *_FUNCTION_PARTS))


@cached_until_text_changes
def _replaced_names(project: Project) -> frozenset[tuple[str, str]]:
    """Return the patched names as pairs (last part of the module's name, name); "" stands for an unknown part."""
    paths = chain(project.texts, project.notebooks)
    return frozenset(
        (module, name)
        for module, name, variable in chain.from_iterable(project.fact(one, names_replaced_in_modules) for one in paths)
        if not variable or is_variable_read(project, variable)
    )


@cached_until_text_changes
def is_variable_read(project: Project, name: str) -> bool:
    """Return whether any code of the project may read a variable called ``name``."""
    return any(project.fact(path, reads_variable, name) for path, _ in project.other_texts("", name))


@lru_cache(maxsize=4096)
def _may_run_files(text: str) -> bool:
    """Return whether code with this text may run another file in the same namespace, as with ``exec`` or ``%run``.

    The code can then read the names that the other file defines.
    """
    return _RUNS_FILES.search(text) is not None


def _aliases_in(text: str) -> list[tuple[str, str]]:
    """Return each imported name with its alias. For ``import a.b as c``, the name is ``b`` and the alias ``c``."""
    before = ((text[max(0, one.start() - _LONGEST_NAME) : one.start()], one[1]) for one in _AS.finditer(text))
    return [(name[1], alias) for words, alias in before if (name := _LAST_WORD.search(words)) is not None]


def _words_read_from(text: str, module: str) -> set[str]:
    """Return the words that a text imports from the module with this dotted name, or reads as its attributes."""
    last = module.rpartition(".")[2]
    imports = re.compile(
        rf"from\b(?<!\wfrom){_GAP}((?:(?:(?!from\b)\w+{_GAP})?\.{_GAP})*{re.escape(last)}){_GAP}\bimport\b"
    )
    statements = (one for one in imports.finditer(text) if _may_name(_BLANK.sub("", one.group(1)), module))
    found = _names_imported(text, (one.end() for one in statements))
    return found.union(*(_attributes_of(name, text) for name in {last, *_module_aliases(last, text)}))


def _words_imported_inside(text: str, around: str, package: str) -> set[str]:
    """Return the words that a module in the package ``around`` imports from ``package`` with relative imports."""
    statements = (
        one for one in _FROM_DOTS.finditer(text) if absolute_name(_BLANK.sub("", one.group(1)), around) == package
    )
    return _names_imported(text, (one.end() for one in statements))


def _names_imported(text: str, starts: Iterable[int]) -> set[str]:
    """Return the words after ``from … import``, up to the closing bracket or the end of the line.

    Args:
        text: text of a file. The file need not be Python, so a line may contain the word ``from`` several times.
        starts: for each ``from … import``, the offset after ``import``, in ascending order.
    """
    found: set[str] = set()
    line_end = 0
    for start in starts:
        opened = _OPENED.match(text, start)
        end = _closing_bracket(text, opened.end()) if opened is not None else None
        if end is None and start < line_end:
            continue  # the words of this statement are words of an earlier statement on the same line, too
        if end is None and (rest := _REST.match(text, start)) is not None:
            end = line_end = rest.end()
        found.update(_IMPORTED_NAME.findall(text, start, end or start))
    return found


def _closing_bracket(text: str, start: int) -> int | None:
    """Return the offset of the first round bracket after ``start`` that is in no comment.

    The result is None if this bracket is an opening bracket, or if no bracket follows.
    """
    line = _LINE_BEFORE_BRACKET.match(text, start)
    end = line.end() if line is not None else start
    if text[end : end + 1] not in ("(", ")"):
        end = _next_on_lines(text, _BRACKET_ON_LINE, end)
    return end if text[end : end + 1] == ")" else None


def _next_on_lines(text: str, pattern: re.Pattern[str], start: int) -> int:
    """Return the offset of group 1 in the first match of ``pattern`` below the line that contains ``start``.

    Without such a match, the result is the length of the text.
    """
    offsets = _offsets_on_lines(text, pattern)
    below = text.find("\n", start)
    number = bisect_left(offsets, below) if below >= 0 else len(offsets)
    return offsets[number] if number < len(offsets) else len(text)


@lru_cache(maxsize=8)
def _offsets_on_lines(text: str, pattern: re.Pattern[str]) -> Sequence[int]:
    return [one.start(1) for one in pattern.finditer(text)]


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

    The name may be in brackets or quotes, as in ``sys.modules["train"].DataLoader``.
    """
    for mention in re.finditer(rf"{re.escape(name)}\b(?<!\w{re.escape(name)})", text):
        behind = _BEHIND.match(text, mention.end())
        end = behind.end() if behind is not None else mention.end()
        if text[end : end + 1] in ("#", "\n"):
            end = _next_on_lines(text, _CODE_ON_LINE, end)
        attribute = _ATTRIBUTE.match(text, end) or _QUOTED_ATTRIBUTE.match(text, mention.end())
        if attribute is not None:
            yield attribute[1]


def _may_name(written: str, name: str) -> bool:
    """Return whether ``import written`` may find the module ``name``.

    Leading packages may be missing in either name, as in ``utils.common`` for ``backend.utils.common``.
    """
    parts, own = written.lstrip(".").split("."), name.split(".")
    shared = min(len(parts), len(own))
    return parts[-shared:] == own[-shared:]
