"""Look up names across the backend: find the module that defines a name, and the modules that import the name."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, lru_cache, partial, wraps
from itertools import accumulate, chain
from pathlib import PurePosixPath
from typing import Any, Concatenate, ParamSpec, TypeVar

import libcst as cst

from chirp_migrate.syntax.class_headers import IN_BRACKETS, words_of_bases
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.import_table import ImportTable, absolute_name, qualified_member_name
from chirp_migrate.syntax.module import Module, UnparsableModule, module_name, package_name, syntax_tree
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.replacements import reads_variable, replaced_module_names
from chirp_migrate.syntax.word_index import WordIndex, words_of

_Definition = TypeVar("_Definition", cst.ClassDef, cst.FunctionDef)
_TEST = re.compile(r"(?:.*/)?(?:tests/.*|test_[^/]*|[^/]*_test|conftest)\.(?:py|ipynb)", re.DOTALL)
_Answer = TypeVar("_Answer")
_Asked = ParamSpec("_Asked")

#: Largest total length, in code points, of the files whose trees are cached. A tree takes 300 bytes per code point.
_CODE_KEPT = 200_000
#: Largest number of cached answers about the whole project. An answer takes about 300 bytes.
_ANSWERS_KEPT = 60_000
#: Largest number of re-exports to follow. The limit also ends cycles of imports.
_REEXPORT_LIMIT = 8
#: Largest number of lookups to resolve one name.
_LOOKUP_LIMIT = 200
#: An empty import table, for names that are not modules of the backend.
_NO_TABLE = ImportTable()
#: Libraries whose classes and functions the rules identify by qualified name.
_LIBRARIES = frozenset({"numpy", "pandas", "PIL", "sklearn", "torch", "torchaudio", "torchvision", "tqdm"})
#: Top-level names that an import normally finds outside the project. Such an import finds a module of the project only
#: if the module is next to the script or at the root.
_ELSEWHERE = (sys.stdlib_module_names | _LIBRARIES) - {"test"}
#: Names for data loading that ``from torch.utils.data import *`` binds.
_TORCH_DATA = re.compile(
    r"(Chain|Concat|Iterable|Stack|Tensor)?Dataset|DataLoader|Subset|random_split|default_(collate|convert)"
    r"|(Batch|Distributed|Random|Sequential|SubsetRandom|WeightedRandom)?Sampler|get_worker_info"
)
#: Attributes of a function that determine what a call does, and a pattern for code that changes such an attribute.
_FUNCTION_PARTS = ("__defaults__", "__kwdefaults__", "__code__")
_FUNCTION_PART = re.compile(
    r"\.\s*(?:__(?:kw)?defaults__|__code__)\s*(?:\[[^\]\n]*\]\s*)?=(?!=)"
    r"|__kwdefaults__\s*\.\s*(?:update|pop|setdefault)\b"
)
_GLOBAL = re.compile(r"(?m)(?:^|[;:\r])[ \t\f]*global\b")
#: Text after ``sys.path`` in a script, and folder names in that text.
_PATH_CHANGE = re.compile(r"\bsys\.path\b(.*)")
_FOLDER = re.compile(r"[\w-]+")
#: ``as`` and the alias in an import. After the alias comes a comma, a bracket, a comment or the end of the statement.
_AS = re.compile(r"as\b(?<=[\s\\]as)[\s\\]+(\w+)[ \t\f]*(?=[,)#;\\\r\n]|\Z)")
_LAST_WORD = re.compile(r"\b(\w+)[\s\\]+$")
#: Largest number of characters that a search reads backwards: for the name before ``as``, or for an assigned name.
_LONGEST_NAME = 200
#: The gap between two words of a statement. ``_BEHIND`` is the gap after a word that may be in brackets or quotes.
_GAP = r"[\s\\]*"
_BEHIND = r"""(?:[\s\\)\]"']|\#[^\n]*\n)*"""
_BLANK = re.compile(r"[\s\\]+")
_FROM_DOTS = re.compile(rf"from\b(?<!\wfrom){_GAP}(\.[\s\\.]*)import\b")
#: Code that may read the names of its own module by strings that it computes.
_READS_COMPUTED_NAMES = r"(?<![\w.])(?:globals|locals|vars|dir|eval|exec)\s*\("
#: Code that may run a file in its own namespace.
_RUNS_FILES = re.compile(r"%run\b|%load\b|\b(?:exec|run_path)\b")
_ASSIGNED = re.compile(r"\b(\w+)\s*:?=\s*(?:\w+\.)*$")
#: Text after ``import``: names up to the closing bracket, or to the end of the line.
_IMPORTED = re.compile(rf"{_GAP}\((?:[^()#]|#[^\n]*(?!.))*\)|(?:[^\n\\]|\\\r?\n?)*")

_METADATA = re.compile(r"""(?m)^\[(?:project|tool\.poetry)\][ \t]*(?:#.*)?$""")


def answered_once(
    analysis: Callable[Concatenate[Project, _Asked], _Answer],
) -> Callable[Concatenate[Project, _Asked], _Answer]:
    """Decorate an analysis of a project, so that its results are cached until a text of the project changes.

    The analysis is a function or method with the project as first argument. Callers must pass further arguments by
    position, and these arguments must be hashable.
    """

    @wraps(analysis)
    def answer(project: Project, /, *asked: _Asked.args, **_: _Asked.kwargs) -> _Answer:
        known, key = project._answers, (analysis, asked)
        try:
            found: _Answer = known[key]
        except KeyError:
            found = analysis(project, *asked, **_)
            if len(known) >= _ANSWERS_KEPT:
                known.clear()
            known[key] = found
        return found

    return answer


class Project:
    """The texts of a backend's modules, parsed on demand.

    Args:
        texts: decoded source by posix path relative to the root.
        notebooks: raw text of each notebook by path. A notebook that is not in ``texts`` is only searched for imports.
        name: dotted name of the root if the root is itself a package, else "".
        import_style: how the project sorts imports; None means isort's order without settings.
        code_style: how the project lays out code; None means that each file keeps its own layout.
        settings: texts of configuration files (YAML, JSON, TOML, INI, gin) and Cython sources by path. These texts are
            only searched for names.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        notebooks: Mapping[str, str] | None = None,
        name: str = "",
        import_style: ImportStyle | None = None,
        code_style: CodeStyle | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._texts = dict(texts)
        self._settings = dict(settings or {})
        self.import_style = import_style or ImportStyle()
        self.code_style = code_style or CodeStyle()
        self._raw_notebooks = dict(notebooks or {})
        self._notebooks = {path: text for path, text in self._raw_notebooks.items() if path not in texts}
        self._name = name
        self._modules: dict[str, Module | None] = {}  # recently used modules, the latest at the end
        self._in_work = ""
        self._first_answers: dict[object, Any] = {}  # answers about the project with its first texts
        self._answers = self._first_answers  # answers about the project with its current texts
        self._facts: dict[str, dict[object, Any]] = defaultdict(dict)  # facts about each file, until its text changes

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_answers": {}, "_first_answers": {}}

    @cached_property
    def _paths(self) -> dict[str, str]:
        """Return the paths of all modules. The key is the dotted name of the module, counted from the root folder.

        If the root is itself a package, each module has a second key that begins with the name of this package.
        """
        named = {f"{self._name}.{module_name(path)}".rstrip("."): path for path in self._texts if self._name}
        return {**named, **{module_name(path): path for path in self._texts}}

    @cached_property
    def _below(self) -> dict[str, set[str]]:
        """Return the names that scripts in subfolders use for modules, each with the dotted names from the root.

        For ``backend/utils/common.py``, scripts in the folder ``backend`` use the name ``utils.common``. The result
        then has the key ``utils.common`` with the value ``{"backend.utils.common"}``.
        """
        packages = {PurePosixPath(path).parent for path in self._texts if path.endswith("__init__.py")}
        found: dict[str, set[str]] = defaultdict(set)
        for path in self._texts:
            around = PurePosixPath(path).parents
            if around[0] not in packages:
                continue
            # If a folder without `__init__.py` is inside a package, the names of its modules begin with the package.
            inside = [folder for folder in around if folder in packages and folder.name]
            # Some projects have a needless `src/__init__.py`, although they install the packages in `src`.
            outermost = inside[-2:] if inside and inside[-1].name == "src" else inside[-1:]
            for folder in (one.parent for one in outermost):
                name = module_name(str(PurePosixPath(path).relative_to(folder)))
                if folder.name and not _is_elsewhere(name):
                    found[name].add(module_name(path))
        return found

    @cached_property
    def _within(self) -> dict[tuple[str, str], set[str]]:
        """Return the dotted names of modules, by the name of a folder and the dotted name counted from this folder.

        For ``a/b/c.py``, the key ``("a", "b.c")`` has the value ``{"a.b.c"}``.
        """
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for name in map(module_name, self._texts):
            parts = name.split(".")
            for start in range(1, len(parts)):
                found[parts[start - 1], ".".join(parts[start:])].add(name)
        return found

    @cached_property
    def _packages(self) -> set[str]:
        """Return the dotted names of all modules, and of the packages that contain them."""
        parts = (name.split(".") for name in (*self._paths, *self._below))
        return {".".join(one[:length]) for one in parts for length in range(1, len(one) + 1)}

    @cached_property
    def _words(self) -> WordIndex:
        return WordIndex(self._texts)

    def has_package(self, name: str) -> bool:
        """Return whether the backend has a package or a module called ``name``."""
        return name == self._name or name in self._packages

    @cached_property
    def is_distributed(self) -> bool:
        """Return whether other projects may install this project.

        The result is True if a file such as ``setup.py`` describes the project as a package.
        """
        return "setup.py" in self._texts or self.settings_match(_METADATA)

    def text(self, path: str) -> str:
        """Return the current text of the file at ``path``."""
        return self._texts[path]

    def has_file(self, path: str) -> bool:
        """Return whether the backend has a readable file at ``path``."""
        return path in self._texts

    def paths_containing(self, *words: str) -> Iterator[str]:
        """Return the paths of the files in which one of ``words`` is a whole word."""
        return self._words.paths_containing(*words)

    def update(self, path: str, text: str) -> None:
        """Replace the text of one file. Later analyses of other modules use the new text."""
        words, before = self._words, self._texts[path]
        if before == text:
            return
        self._texts[path] = text
        self._drop_module(path)
        self._facts.pop(path, None)
        self._answers = {} if words.changed(path, before) else self._first_answers

    def _drop_module(self, path: str) -> None:
        module = self._modules.pop(path, None)
        if module is not None:
            module.drop_cache()

    def module(self, path: str, *, in_work: bool = False) -> Module:
        """Return the parsed module at ``path``.

        Args:
            path: path of a file of the backend.
            in_work: whether rules analyse this module now. If so, the module stays parsed until the next call with
                ``in_work``.

        Raises:
            UnparsableModule: the text is not Python.
        """
        self._in_work = path if in_work else self._in_work
        if path not in self._modules:
            self._modules[path] = None
            self._modules[path] = Module(path, self._texts[path])
            for one in [one for one in self._modules if one not in (path, self._in_work)]:
                if sum(len(self._texts[kept]) for kept in self._modules) <= _CODE_KEPT:
                    break
                self._drop_module(one)
        module = self._modules[path] = self._modules.pop(path)
        if module is None:
            raise UnparsableModule("an earlier attempt to parse the module failed")
        return module

    def table(self, path: str) -> ImportTable | None:
        """Return the names that the module at ``path`` binds at its top level; ``None`` if the text is not Python."""
        return self._fact(path, _read_table, path, self._from_root)

    @answered_once
    def resolve(self, qualified: str) -> str:
        """Follow re-exports through modules of the backend, and return the qualified name of the definition.

        ``utils.common.DataLoader`` becomes ``torch.utils.data.DataLoader`` if ``utils/common.py`` imports the class
        from PyTorch. For a name that the backend defines, the result starts with the dotted name of the defining
        module, counted from the root folder. If a library has the same name as the module's top-level package, the
        result begins with a dot. A name from outside the backend, or with several possible meanings, is returned
        unchanged.
        """
        return self._origin(qualified)

    def _origin(self, qualified: str, around: frozenset[str] = frozenset(), steps: Iterator[int] | None = None) -> str:
        """Resolve a name like :meth:`resolve`, without its cache.

        Args:
            qualified: the name.
            around: the names whose lookups led to this lookup. These names are not looked up again, because ``from ._C
                import *`` may form a cycle.
            steps: an iterator with one item for each lookup that is still allowed. The number is limited, because
                modules that import from each other can form many cycles.
        """
        steps = iter(range(_LOOKUP_LIMIT)) if steps is None else steps
        for _ in zip(range(_REEXPORT_LIMIT), steps, strict=False):
            owner, _, name = qualified.rpartition(".")
            path = self._paths.get(owner.lstrip("."))
            if path is None and owner and owner not in around:
                known = self._origin(owner, around | {owner}, steps)
                if known != owner:
                    qualified = f"{known}.{name}"
                    continue
            table = self.table(path) if path is not None and self._may_bind(path, name) else None
            if path is None or table is None:
                return qualified
            if table.defines(name):
                return f"{_name_from_root(path)}.{name}" if owner else qualified
            targets = self._imported_meanings(table, name)
            if len(targets) != 1 or qualified in targets:
                return qualified
            (qualified,) = targets
        return qualified

    def _may_bind(self, path: str, name: str) -> bool:
        text = self._texts[path]
        return name in text or "*" in text

    def _imported_meanings(self, table: ImportTable, name: str) -> set[str]:
        """Return the possible qualified names of an imported name. A later ``import *`` may add further names."""
        bound = table.imports.get(name, set())
        stars = table.later_stars.get(name, ()) if bound else table.stars
        return bound | {f"{source}.{name}" for source in stars if self._star_may_give(source, name)}

    def meanings_from_elsewhere(self, module: Module, name: str) -> set[str]:
        """Return the qualified names that ``name`` in ``module`` may get from an ``import *`` of the backend.

        In a package, ``name`` may also be a module of the package, which becomes an attribute when it is imported.
        """
        written = {f"{module.absolute(source)}.*" for source, _ in module.scopes.stars}
        sources = {one.rpartition(".")[0] for star in written for one in self._from_root(module.path, star)}
        found = {self.resolve(f"{source}.{name}") for source in sources if self._star_may_give(source, name, own=True)}
        inside = qualified_member_name(module.name, name)
        return found | ({inside} if module.path.endswith("__init__.py") and inside in self._packages else set())

    def binds_other_object(self, besides: str, name: str, qualified: str) -> bool:
        """Return whether a file binds ``name`` at its top level to an object other than ``qualified``.

        The file ``besides`` does not count.
        """
        tables = (self.table(path) or _NO_TABLE for path in self.paths_containing(name) if path != besides)
        return any(
            table.defines(name) or any(self.resolve(one) != qualified for one in table.imports.get(name, ()))
            for table in tables
        )

    def _star_may_give(self, source: str, name: str, *, own: bool = False) -> bool:
        """Return whether ``from source import *`` may bind ``name``. A module outside the backend may bind any name.

        Args:
            source: dotted name of the module.
            name: a name.
            own: whether only objects of modules of the backend count. If so, submodules and computed names count, too.
        """
        return any(self._may_give(one, name, own) for one in self._star_sources(source, name))

    def _may_give(self, source: str, name: str, own: bool) -> bool:
        path = self._paths.get(source)
        if path is None and not own:
            return source != "torch.utils.data" or _TORCH_DATA.fullmatch(name) is not None
        table = self.table(path) if path is not None else _NO_TABLE
        if table is None or not table.exports(name):
            return table is None
        if table.defines(name) or name in table.imports:
            return True
        # The module may bind computed names, or create attributes on access. A module of a package becomes an attribute
        # of the package when code imports it.
        text = self._texts[path] if path is not None else ""
        is_dynamic = "globals" in text or "setattr" in text or table.defines("__getattr__")
        return own and (f"{source}.{name}" in self._packages or (is_dynamic and name in words_of(text)))

    def _star_sources(self, source: str, name: str) -> Iterator[str]:
        """Yield ``source``, and all modules from which ``source`` may get ``name`` by a chain of ``import *``."""
        pending, seen = [source], {source}
        while pending:
            yield (one := pending.pop())
            path = self._paths.get(one)
            table = self.table(path) if path is not None else None
            new = [star for star in table.stars if star not in seen] if table and table.exports(name) else []
            pending += new
            seen.update(new)

    def resolved_names(self, module: Module, node: cst.CSTNode) -> set[str]:
        """Return the possible qualified names of ``node``, with re-exports and ``import *`` resolved."""
        names = module.qualified_names(node)
        if module.scopes.stars:
            names = {name for name in names if self._is_possible(module, name)}
            names |= {name for name in module.names_from_later_stars(node) if self._is_possible(module, name)}
            names |= {one for name in names for one in self._instead_of_builtin(module, name)}
        return {self.resolve(one) for name in names for one in self._from_root(module.path, name)}

    def possible_names(self, outline: Outline, node: ast.AST) -> set[str]:
        """Return a superset of :meth:`resolved_names` for an expression of a module that LibCST has not parsed."""
        names = outline.possible_names(node)
        return {self.resolve(one) for name in names for one in self._from_root(outline.path, name)}

    def _instead_of_builtin(self, module: Module, qualified: str) -> set[str]:
        """Return the qualified names that a built-in name may get from an ``import *`` of the backend."""
        owner, _, path = qualified.partition(".")
        first, dot, rest = path.partition(".")
        return (
            {one + dot + rest for one in self.meanings_from_elsewhere(module, first)} if owner == "builtins" else set()
        )

    def _is_possible(self, module: Module, name: str) -> bool:
        """Return whether an object with this qualified name may exist.

        The result is False only for a name from an ``import *`` whose module provably lacks the name.
        """
        for source in {module.absolute(source) for source, _ in module.scopes.stars}:
            if name.startswith(f"{source}."):
                first = name.removeprefix(f"{source}.").partition(".")[0]
                explicit = module.scopes.module.bindings.get(first, [])
                known = any(module.absolute(one.qualified) == f"{source}.{first}" for one in explicit)
                from_root = self._from_root(module.path, f"{source}.{first}")
                return known or any(self._star_may_give(one.rpartition(".")[0], first) for one in from_root)
        return True

    def _from_root(self, path: str, name: str) -> set[str]:
        """Convert a qualified name that the file at ``path`` uses to its possible dotted names from the root folder."""
        owner = name
        while owner := owner.rpartition(".")[0]:
            if modules := self._possible_modules(owner, path):
                return {f"{one}{name[len(owner) :]}" for one in modules}
        return {name}

    @answered_once
    def located(self, path: str, name: str) -> list[tuple[str, str]]:
        """Find the modules of the backend to which an import of ``name`` in the file at ``path`` may refer.

        Returns:
            The path of each module, with the part of ``name`` that names a member of the module ("" for the module
            itself).
        """
        found: list[tuple[str, str]] = []
        for full in sorted(self._from_root(path, f"{name}.*")):
            module, rest = full.removesuffix(".*"), ""
            while module and module not in self._paths:
                module, _, last = module.rpartition(".")
                rest = f"{last}.{rest}".rstrip(".")
            if module:
                found.append((self._paths[module], rest))
        return found

    @answered_once
    def _possible_modules(self, name: str, path: str) -> set[str]:
        """Return the dotted names, from the root, of modules that ``import name`` in the file at ``path`` may find.

        Scripts import modules from their own folder, or from a folder that they put on ``sys.path``. Packages import
        from the folders that contain them. The result has no modules in any other folder, because a library may have
        the same name.
        """
        folder = package_name(path)
        folders = list(accumulate(folder.split("."), "{}.{}".format)) if folder else []
        # Imports start from folders that are not packages. Only a script also imports from its own folder in a package.
        around = folders[-1:] if _is_elsewhere(name) else folders
        outside = (f"{one}.{name}" for one in reversed(around) if one not in self._paths)
        found = {next((one for one in outside if one in self._paths), ""), name if name in self._paths else ""} - {""}
        found |= self._in_named_folders(name, path)
        beside = f"{folder}.{name}"
        if found or (beside in self._paths and not _is_elsewhere(name)):
            return found or {beside}
        below = self._below.get(name, set())
        sources = (f"{one}.src.{name}".lstrip(".") for one in (*reversed(folders), ""))
        nearest = next((one for one in sources if one in below), "")
        return {nearest} if nearest else below

    def _in_named_folders(self, name: str, path: str) -> set[str]:
        """Return the modules called ``name`` in folders that the file at ``path`` may put on ``sys.path``.

        Folders are compared by their last name only.
        """
        found: set[str] = set()
        # A file that cannot be read has no known changes of `sys.path`.
        for words in self._fact(path, _folders_on_path) if path in self._texts else ():
            found |= next((self._within[word, name] for word in words if (word, name) in self._within), set())
        return found

    def _find_binding_module(self, qualified: str) -> tuple[str, str, ImportTable]:
        """Return the last part of a qualified name, and the path and import table of the module that may bind it.

        The table is empty if no module of the backend may bind the name.
        """
        owner, _, name = self.resolve(qualified).rpartition(".")
        path = self._paths.get(owner.lstrip("."))
        table = self.table(path) if path is not None and name in self._texts[path] else None
        return name, path or "", table or _NO_TABLE

    def defines(self, qualified: str) -> bool:
        """Return whether a module of the backend defines a qualified name at its top level."""
        name, _, table = self._find_binding_module(qualified)
        return table.defines(name)

    def base_classes(self, qualified: str) -> set[str] | None:
        """Return the possible bases of a top-level class of the backend; ``None`` if the class does not exist.

        The bases come from the import table, so the lookup does not need LibCST.
        """
        name, path, table = self._find_binding_module(qualified)
        if name not in table.classes:
            return None
        names: set[str] = set()
        for base in filter(None, table.classes[name]):
            root, dot, rest = base.partition(".")
            if table.defines(root):
                names.add(f"{module_name(path)}.{base}".lstrip("."))
            else:
                names |= {f"{target}{dot}{rest}" for target in self._imported_meanings(table, root)}
        return {self.resolve(one) for one in names}

    def is_class(self, qualified: str) -> bool:
        """Return whether ``qualified`` names a top-level class of the backend. The lookup does not need LibCST."""
        name, _, table = self._find_binding_module(qualified)
        return name in table.classes

    def class_definition(self, qualified: str) -> tuple[Module, cst.ClassDef] | None:
        """Return module and definition of the backend's top-level class ``qualified``; None if it does not exist."""
        return self._definition(qualified, cst.ClassDef)

    def function_definition(self, qualified: str) -> tuple[Module, cst.FunctionDef] | None:
        """Return module and definition of the top-level function ``qualified`` of the backend.

        The result is None if the function does not exist.
        """
        return self._definition(qualified, cst.FunctionDef)

    def parameter_names(self, qualified: str) -> tuple[str, ...]:
        """Return the parameter names of a top-level function or class of the backend; empty for any other name."""
        name, _, table = self._find_binding_module(qualified)
        return table.parameters.get(name, ())

    def _definition(self, qualified: str, kind: type[_Definition]) -> tuple[Module, _Definition] | None:
        name, path, table = self._find_binding_module(qualified)
        if name not in table.classes and name not in table.functions:
            return None
        try:
            module = self.module(path)
        except UnparsableModule:
            return None
        definitions = (one for one in module.tree.body if isinstance(one, cst.ClassDef | cst.FunctionDef))
        first = next((one for one in definitions if one.name.value == name), None)
        return (module, first) if isinstance(first, kind) else None

    @answered_once
    def aliases(self, name: str) -> set[str]:
        """Return other names under which modules of the backend import ``name``, and aliases of these aliases."""
        direct = self._joined(_aliases_in)
        pending, found = [name], {name}
        for one in pending:
            new = direct.get(one, set()) - found
            found |= new
            pending += new
        return found - {name}

    @answered_once
    def _joined(self, analysis: Callable[[str], Collection[tuple[str, str]]]) -> dict[str, set[str]]:
        """Return the pairs that an analysis finds in the texts of all files.

        The result maps the first part of each pair to the set of all its second parts.
        """
        found: dict[str, set[str]] = defaultdict(set)
        for path in self._texts:
            for key, value in self._fact(path, analysis):
                found[key].add(value)
        return dict(found)

    @answered_once
    def descendants(self, *bases: str) -> frozenset[str]:
        """Return names of classes that inherit, maybe indirectly, from a class with one of ``bases`` in its name.

        Names are compared by spelling only. Names that contain one of ``bases`` are omitted. The result also includes
        other names under which files import these classes or ``bases``.
        """
        words = (word for word in self._joined(words_of_bases) if not word.startswith(IN_BRACKETS))
        pending = [*bases, *(name for name in words if any(base in name for base in bases))]
        names: set[str] = set()
        for name in pending:
            new = (self.subclasses(name) | self.aliases(name)) - names
            names |= new
            pending += new
        return frozenset(name for name in names if not any(base in name for base in bases))

    def subclasses(self, *bases: str, parameters: bool = False) -> set[str]:
        """Return the names of classes that directly inherit from a class called like one of ``bases``.

        Args:
            bases: names of the base classes, without the names of their modules.
            parameters: whether a name inside square brackets also counts as a base, as ``Birds`` in ``Base[Birds]``.
        """
        inheriting = self._joined(words_of_bases)
        words = (*bases, *(IN_BRACKETS + one for one in bases if parameters))
        return set().union(*(inheriting.get(one, ()) for one in words))

    @answered_once
    def search(self, pattern: str | re.Pattern[str], *words: str) -> bool:
        """Return whether a regular expression matches in any file of the backend.

        Args:
            pattern: the regular expression.
            words: whole words of which every match contains at least one. Only files with one of the words are
                searched. Without words, all files are searched.
        """
        return any(self.matching(re.compile(pattern), *words))

    def _fact(
        self, path: str, analysis: Callable[Concatenate[str, _Asked], _Answer], *asked: _Asked.args, **_: _Asked.kwargs
    ) -> _Answer:
        """Return the result of ``analysis`` for the text of a file or notebook, cached until this text changes."""
        known, key = self._facts[path], (analysis, asked)
        try:
            found: _Answer = known[key]
        except KeyError:
            text = self._texts[path] if path in self._texts else self._notebooks[path]
            found = known[key] = analysis(text, *asked, **_)
        return found

    def matching(self, pattern: re.Pattern[str], *words: str) -> Iterator[tuple[str, str]]:
        """Yield path and text of every file in which a regular expression matches (see :meth:`search`)."""
        paths = self.paths_containing(*words) if words else iter(self._texts)
        return ((path, self._texts[path]) for path in paths if self._fact(path, _matches, pattern))

    def settings_match(self, pattern: re.Pattern[str]) -> bool:
        """Return whether a regular expression matches in a configuration file or Cython source of the backend."""
        return any(pattern.search(text) for text in self._settings.values())

    def imported_elsewhere(self, module: Module, name: str) -> bool:
        """Return whether another file or notebook of the backend may import or read ``name`` from ``module``.

        An ``import *`` counts as an import of every name that the text of the importing file contains. An ``import *``
        also counts if the importing file may read computed names, as with ``globals()``, or if other files import the
        name from the importing file. The result may be True by mistake, because ``x.name`` counts for any ``x`` with
        the name of the module.
        """
        return self._may_be_imported(module.path, name, {module.path}) or self._is_run_with(module.path, name)

    def _is_run_with(self, path: str, name: str) -> bool:
        """Return whether a file or notebook may run the file at ``path`` in its own namespace, as with ``%run``.

        Only files and notebooks with the word ``name`` count.
        """
        stem = re.escape(PurePosixPath(path).stem)
        file = re.compile(rf"\b{stem}\.py\b|%run\b[^\r\n]*\b{stem}\b")
        held = ((other, self._texts[other]) for other in self.paths_containing(name))
        # The text of a notebook in `_texts` has no magics.
        return any(
            other != path and name in text and _may_run_files(text) and file.search(text)
            for other, text in chain(held, self._raw_notebooks.items())
        )

    def _may_be_imported(self, path: str, name: str, seen: set[str]) -> bool:
        """Return whether another file may import or read ``name`` from the module at ``path``.

        The function adds the files with an ``import *`` from the module to ``seen``.
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
        """Return the words that other files import or read from a module, each with the paths of these files."""
        found: dict[str, set[str]] = defaultdict(set)
        full = module_name(path) or self._name
        last = full.rpartition(".")[2]
        for reader, _ in self._other_texts(path, last) if last else ():
            for word in self._fact(reader, _words_read_from, full):
                found[word].add(reader)
        if path.endswith("__init__.py"):
            folder = path.removesuffix("__init__.py")
            for inside in chain(self._texts, self._notebooks):
                if inside != path and inside.startswith(folder):
                    for word in self._fact(inside, _words_imported_inside, package_name(inside), module_name(path)):
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

        A file that mentions the class and assigns the defaults or the code of a function counts, too.
        """
        assigned = rf"\b{re.escape(title)}\s*\.\s*\w+\s*=(?!=)"
        if any(owner == title for owner, _ in self._replaced_names()) or self.search(assigned, title):
            return True
        mentioned = re.compile(rf"\b{re.escape(title)}\b")
        return any(mentioned.search(text) for _, text in self.matching(_FUNCTION_PART, *_FUNCTION_PARTS))

    @answered_once
    def _replaced_names(self) -> frozenset[tuple[str, str]]:
        """Return the patched names, each with the last part of its module's name; "" stands for any module."""
        paths = chain(self._texts, self._notebooks)
        return frozenset(
            (module, name)
            for module, name, variable in chain.from_iterable(self._fact(one, replaced_module_names) for one in paths)
            if not variable or self.reads_variable(variable)
        )

    @answered_once
    def reads_variable(self, name: str) -> bool:
        """Return whether any code of the project may read a variable called ``name``."""
        return any(self._fact(path, reads_variable, name) for path, _ in self._other_texts("", name))

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

    def _other_texts(self, besides: str, word: str) -> Iterator[tuple[str, str]]:
        """Yield path and text of other files with ``word`` as a whole word, and of notebooks that contain ``word``."""
        paths = self.paths_containing(word) if word else iter(self._texts)
        held = ((path, self._texts[path]) for path in paths if path != besides)
        books = ((path, text) for path, text in self._notebooks.items() if path != besides and word in text)
        return chain(held, books)


def is_test_file(path: str) -> bool:
    """Return whether a file belongs to the project's tests, by pytest's naming or by the folder ``tests``."""
    return _TEST.fullmatch(path) is not None


def _matches(text: str, pattern: re.Pattern[str]) -> bool:
    return pattern.search(text) is not None


def _read_table(text: str, path: str, from_root: Callable[[str, str], set[str]]) -> ImportTable | None:
    try:
        read = ImportTable.read(syntax_tree(text), package_name(path), has_globals=_has_globals(text))
    except UnparsableModule:
        return None
    return read.renamed(partial(from_root, path))


def _folders_on_path(text: str) -> list[list[str]]:
    """Return the words after each ``sys.path`` in a text, such as names of folders, the last word first."""
    return [_FOLDER.findall(change)[::-1] for change in _PATH_CHANGE.findall(text)]


@lru_cache(maxsize=4096)
def _may_run_files(text: str) -> bool:
    """Return whether code with this text may run another file in the namespace of the code, as with ``exec``."""
    return _RUNS_FILES.search(text) is not None


def _has_globals(text: str) -> bool:
    """Return whether a text may contain a ``global`` statement."""
    return "global" in text and _GLOBAL.search(text) is not None


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
    statements = [one for one in imports.finditer(text) if _may_name(_BLANK.sub("", one.group(1)), module)]
    found = {word for one in statements for word in _names_imported(text, one.end())}
    return found.union(*(_attributes_of(name, text) for name in {last, *_module_aliases(last, text)}))


def _words_imported_inside(text: str, around: str, package: str) -> set[str]:
    """Return the words that a module in the package ``around`` imports from ``package`` with relative imports."""
    statements = _FROM_DOTS.finditer(text)
    return {
        word
        for one in statements
        if absolute_name(_BLANK.sub("", one.group(1)), around) == package
        for word in _names_imported(text, one.end())
    }


def _names_imported(text: str, start: int) -> list[str]:
    """Return the words after ``from … import``; ``start`` is the offset after ``import``."""
    clause = _IMPORTED.match(text, start)
    return re.findall(r"\w+|\*", clause.group()) if clause is not None else []


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


def _name_from_root(path: str) -> str:
    """Return the dotted name of the module at ``path``, with a leading dot if a library has the same name."""
    name = module_name(path)
    return f".{name}" if name.partition(".")[0] in _LIBRARIES else name


def _is_elsewhere(name: str) -> bool:
    """Return whether an import of ``name`` finds a library, even if a module in the backend has the same name."""
    return name.partition(".")[0] in _ELSEWHERE


def _may_name(written: str, name: str) -> bool:
    """Return whether ``import written`` may find the module ``name``.

    Leading packages may be missing in either name, as in ``utils.common`` for ``backend.utils.common``.
    """
    parts, own = written.lstrip(".").split("."), name.split(".")
    shared = min(len(parts), len(own))
    return parts[-shared:] == own[-shared:]
