"""CHP006: dataset classes defined inside functions move to the module, where worker processes find them (R-000-1.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.closures import Capture, bindings, captures, reads_of
from chirp_migrate.analysis.dataflow.constructions import constructor_calls
from chirp_migrate.analysis.dataflow.worker_escape import DATASETS, Destinations, base_names
from chirp_migrate.edits.import_time import check_class
from chirp_migrate.edits.movability import check_body, check_values, is_unused
from chirp_migrate.edits.move_definition import (
    NotMovable,
    definition_range,
    free_name,
    import_edits,
    import_lines,
    insert_at,
    insertion_offset,
    joined,
    left_over_imports,
    moved,
    nests,
    removal,
    statement_after_docstring,
)
from chirp_migrate.edits.signatures import parameter_edits, parameters_offset
from chirp_migrate.edits.statements import is_dispensable
from chirp_migrate.plans.plan import Edit, Safety
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.syntax.module import Module, matching
from chirp_migrate.syntax.project import Project

_WORDS = re.compile(r"Dataset")
#: Bases without a constructor that would have to be called.
_BARE = re.compile(
    r"torch\.utils\.data\.((dataset|sampler)\.)?(Dataset|IterableDataset|Sampler)|typing\.Generic|abc\.ABC"
)
_BASES_LIMIT = 8


#: Methods with which a class makes, copies or looks at its objects and their attributes itself.
_OWN_STATE = re.compile(
    r"__(new|getattr|getattribute|setattr|getstate|setstate|reduce|reduce_ex|copy|deepcopy|getnewargs|getnewargs_ex)__"
)
#: What attributes for captured values begin with.
_KEPT = "_captured_"
#: Attributes that tell where a class was defined, or what its objects keep.
_TELLING = frozenset({"__dict__", "__qualname__"})


def _is_plain(project: Project, qualified: str, depth: int = 0) -> bool:
    """Whether a base does nothing when a class is made from it, and lets its objects have any attributes."""
    if DATASETS.fullmatch(qualified) or _BARE.fullmatch(qualified):
        return True
    found = project.class_definition(qualified)
    if found is None or found[1].keywords or found[1].decorators or depth >= _BASES_LIMIT:
        return False
    module, node = found
    methods = [one.name.value for one in node.body.body if isinstance(one, cst.FunctionDef)]
    if any(_OWN_STATE.fullmatch(one) for one in methods) or "__init_subclass__" in methods:
        return False
    if _KEPT in module.source(node):
        return False
    return all(_is_plain(project, one, depth + 1) for one in base_names(module, project, node))


class LocalDatasetClass(Rule):
    """Requires, of a dataset class inside a function (samplers stay in the main process):

    - `only-constructed`: all that is done with it outside of itself is to call it, without ``*`` and ``**``, where it
      surely has been defined, and with arguments that more can be added to.
    - `straight-in-function`: it is defined straight in a function, not in the body of a class, nor alone in a block.
    - `no-decorator`: it has no decorators and no class keywords.
    - `plain-bases`: its bases are named, known where it moves, and PyTorch's or torchvision's, or classes of the
      project over such, without ``__init_subclass__`` and methods that make, copy or look at objects and their
      attributes.
    - `plain-body`: its body holds methods and constants; decorators are those of Python and PyTorch; these, defaults
      and annotations are known where it moves, and the same.
    - `placeless`: nothing in it depends on where it stands: ``eval``, ``vars``, ``nonlocal``, ``__dict__``,
      ``__qualname__``.
    - `no-class-state`: it does not set attributes of itself, nor use itself by its name but for ``super`` and to read
      attributes.
    - `captured-in-methods`: what it takes from the function is read in the bodies of methods, whose first parameter is
      ``self``, or else in ``__init__``.
    - `bound-once`: what is captured surely has its value where the class is defined, and keeps it while the class is
      used.
    - `plain-values`: what is captured is no local function, class or lambda, and its name does not begin with two
      underscores; imports are those of one statement.
    - `plain-constructor`: if something is captured, an ``__init__`` is a block without ``**`` parameters and names of
      its own for it, one from a base is not needed, and no method makes, copies or looks at objects and their
      attributes.

    Where its name is taken it moves under another one. Objects of it then have attributes for what was captured.
    """

    code: ClassVar[str] = "CHP006"
    name: ClassVar[str] = "local-dataset-class"
    reason: ClassVar[str] = (
        "Worker processes look a class up by its name in a module; a class inside a function has none, so its datasets "
        "cannot be pickled. At module level it can, and what it took from the function comes in as arguments."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("Dataset",)

    def concerns(self, text: str, project: Project) -> bool:
        """Modules with classes in functions, and with words for what these may be."""
        return _WORDS.search(text) is not None and nests(text, "class")

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Move function-local dataset classes in front of the function."""
        destinations = module.once(Destinations, project)
        taken: set[str] = set()
        for node in module.find(cst.ClassDef):
            if module.enclosing_function(node) is not None and destinations.of_class(node) is not None:
                try:
                    yield _Moved(module, project, node).proposal(taken)
                except NotMovable as reason:
                    yield Proposal(
                        module.span(node.name)[0],
                        f"local class `{node.name.value}` cannot be pickled for workers; move it to module level: "
                        f"{reason}",
                    )


class _Moved:
    """A class on its way to the module: what it captures becomes keyword-only constructor arguments."""

    def __init__(self, module: Module, project: Project, node: cst.ClassDef) -> None:
        self.module, self.project, self.node = module, project, node
        self.scope = module.scopes.scope_of(node)
        self.title = node.name.value
        captured = captures(module, node.body)
        captured.pop(self.title, None)
        self.imports = [one for one in captured.values() if one.is_import]
        self.values = [one for one in captured.values() if not one.is_import]
        body = node.body.body if isinstance(node.body, cst.IndentedBlock) else ()
        self.methods = [one for one in body if isinstance(one, cst.FunctionDef)]
        self.init = next((one for one in self.methods if one.name.value == "__init__"), None)

    def proposal(self, taken: set[str]) -> Proposal:
        """The edits that move the class; its new name is added to ``taken``.

        Raises:
            NotMovable: it cannot be moved, for the reason given.
        """
        module, node, title = self.module, self.node, self.title
        self._check()
        calls = constructor_calls(module, node, title)
        if calls is None:
            raise NotMovable("it is used as a value there")
        namesakes = [one for one in module.find(cst.ClassDef) if one.name.value == title and one is not node]
        is_free = not namesakes and is_unused(module, self.project, title, self.scope)
        name = title if is_free else free_name(module, [title], taken)
        taken.add(name)
        start, end = definition_range(module, node)
        own = [
            one for one in reads_of(module, title, self.scope) if start <= module.span(one)[0] < end and name != title
        ]
        inside = [Edit(*module.span(node.name), name), *(Edit(*module.span(one), name) for one in own)]
        text = moved(module, (start, end), "", [*inside, *self._handed_in(), *self._imported()])
        edits = [removal(module, start, end), *insert_at(module, insertion_offset(module, node), text)]
        edits += left_over_imports(module, (start, end), self.imports)
        for call in calls:
            edits += self._construction(call, name)
        message = f"local class `{title}` cannot be pickled for workers: moved to module level"
        return Proposal(module.span(node.name)[0], message, joined(edits))

    def _construction(self, call: cst.Call, name: str) -> Iterator[Edit]:
        """Edits of a constructor call: the name, and the captured values."""
        if name != self.title:
            yield Edit(*self.module.span(call.func), name)
        for one in self.values:
            owner = self.module.scopes.lookup(one.name, call)
            if owner is None or owner[0] is not one.scope:
                raise NotMovable(f"`{one.name}` means something else where it is constructed")
        if self.values:
            if call.args and isinstance(call.args[-1].value, cst.GeneratorExp) and not call.args[-1].value.lpar:
                raise NotMovable("it is given a generator without brackets")
            if call.args and self.init is None:
                raise NotMovable("it is given arguments for the constructor of its base class")
            end = self.module.span(call)[1] - 1
            comma = call.args and not isinstance(call.args[-1].comma, cst.Comma)
            yield Edit(end, end, (", " if comma else "") + ", ".join(f"{one.name}={one.name}" for one in self.values))

    def _check(self) -> None:
        node, module = self.node, self.module
        if not isinstance(self.scope.node, cst.FunctionDef):
            raise NotMovable("it is defined in the body of another class")
        if not is_dispensable(module, node):
            raise NotMovable("it is the only statement of its block")
        if node.decorators or node.keywords:
            raise NotMovable("it is decorated or takes class keywords")
        check_body(module, node)
        self._check_class_state()
        for name in captures(module, *(one.value for one in node.bases)):
            raise NotMovable(f"its base class comes from `{name}` of the function")
        for one in (*self.values, *self.imports):
            if re.fullmatch(r"__\w*[^\W_]", one.name):
                raise NotMovable(f"`{one.name}` would be mangled inside of a class")
            self._check_reads(one)
        check_values(module, node, self.values)
        check_class(module, self.project, node, insertion_offset(module, node))
        if _KEPT in module.source(node):
            raise NotMovable(f"names with `{_KEPT}` in it are taken")
        if not all(_is_plain(self.project, base) for base in base_names(module, self.project, node)):
            raise NotMovable("its base class may look at the classes made from it, or keep its state in its own way")
        if self.values:
            self._check_constructor()

    def _check_class_state(self) -> None:
        """See that nothing tells the class that every call made from the one that all share then."""
        start, end = self.module.span(self.node)
        for read in reads_of(self.module, self.title, self.scope):
            parent = self.module.parents[read]
            of_super = isinstance(parent, cst.Arg) and m.matches(self.module.parents[parent], m.Call(m.Name("super")))
            if start <= self.module.span(read)[0] < end and not (of_super or isinstance(parent, cst.Attribute)):
                raise NotMovable("it uses itself by its name")
        own = m.Call(m.Name("type")) | m.Attribute(attr=m.Name("__class__")) | m.Name("cls") | m.Name(self.title)
        for one in matching(self.node, m.Attribute()):
            assert isinstance(one, cst.Attribute)
            is_set = isinstance(self.module.parents[one], cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.Del)
            if one.attr.value in _TELLING or (is_set and m.matches(one.value, own)):
                raise NotMovable(f"`{self.module.source(one)}` in it is about this one class")

    def _check_constructor(self) -> None:
        """See that the constructor can take what is captured, and that objects keep it."""
        if any(_OWN_STATE.fullmatch(one.name.value) for one in self.methods):
            raise NotMovable("it makes or keeps its objects in its own way")
        if self.init is None:
            if not all(_BARE.fullmatch(base) for base in base_names(self.module, self.project, self.node)):
                raise NotMovable("the constructor of its base class would have to be called")
        elif not isinstance(self.init.body, cst.IndentedBlock):
            raise NotMovable("its constructor is written in one line")
        elif any(one.name in {name for name, _ in bindings(self.module, self.init)} for one in self.values):
            raise NotMovable("its constructor has a name of its own for what another method captures")

    def _check_reads(self, captured: Capture) -> None:
        """See that a captured name is only read in methods, where ``self`` is known."""
        for read in captured.reads:
            method = self._method_of(read)
            if method is None:
                raise NotMovable(f"its class body uses `{read.value}` of the function")
            if captured.is_import or method is self.init:
                continue
            own = self.module.scopes.lookup("self", read)
            first = method.params.params[:1]
            if method.decorators or own is None or [one.node for one in own[1]] != list(first):
                raise NotMovable(f"`{read.value}` of the function is used where `self` is not known")

    def _method_of(self, read: cst.CSTNode) -> cst.FunctionDef | None:
        """The method in whose body a name is read."""
        around = set(self.module.ancestors(read))
        return next((one for one in self.methods if one.body in around), None)

    def _handed_in(self) -> list[Edit]:
        """Edits that keep what the constructor is given, and read it from ``self``."""
        module = self.module
        edits = [
            Edit(*module.span(read), f"self.{_KEPT}{one.name}")
            for one in self.values
            for read in one.reads
            if self._method_of(read) is not self.init
        ]
        if not self.values:
            return edits
        names = [one.name for one in self.values]
        old = module.indentation(module.span(self.node)[0])
        if self.init is not None:
            first = module.line_start(module.span(statement_after_docstring(self.init))[0])
            inner = module.indentation(first).removeprefix(old)
            edits += parameter_edits(module, self.init.params, parameters_offset(module, self.init), [], names)
            lines = [f"{inner}self.{_KEPT}{name} = {name}" for name in names]
            return [*edits, Edit(first, first, "".join(line + module.newline for line in lines))]
        first = definition_range(module, self.methods[0])[0]
        step = module.indentation(module.span(self.methods[0])[0]).removeprefix(old)
        lines = [f"{step}def __init__(self, *, {', '.join(names)}):"]
        lines += [f"{step}{module.tree.default_indent}self.{_KEPT}{name} = {name}" for name in names]
        return [*edits, Edit(first, first, "".join(line + module.newline for line in (*lines, "")))]

    def _imported(self) -> list[Edit]:
        """Edits that repeat imports of the function in the methods that use them."""
        edits: list[Edit] = []
        for method in self.methods:
            used = [one for one in self.imports if any(self._method_of(read) is method for read in one.reads)]
            old = self.module.indentation(self.module.span(self.node)[0])
            indent = self.module.indentation(self.module.span(method)[0]).removeprefix(old)
            edits += import_edits(self.module, method, indent, import_lines(self.module, used))
        return edits
