"""What a function, lambda or class takes from the functions around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from chirp_migrate.syntax.module import Module, code_children, walk
from chirp_migrate.syntax.scopes import Binding, Kind, Scope


@dataclass(frozen=True, eq=False)
class Capture:
    """A name that belongs to a function around.

    Attributes:
        name: the name.
        scope: what it belongs to.
        bindings: every place that gives it a value.
        reads: where it is read.
    """

    name: str
    scope: Scope
    bindings: list[Binding]
    reads: list[cst.Name] = field(default_factory=list)

    @property
    def is_import(self) -> bool:
        """Whether an import inside the function gives it its value, at least in one place."""
        return any(one.kind is Kind.IMPORT for one in self.bindings)


def captures(module: Module, *parts: cst.CSTNode) -> dict[str, Capture]:
    """Names read in ``parts`` that belong to functions, classes or comprehensions around them, in order of first use.

    Of a function, ``parts`` are its body, or its defaults, which are evaluated outside of it.
    """
    found: dict[str, Capture] = {}
    for part in parts:
        around = {one for one in module.ancestors(part) if getattr(one, "body", None) is not part}
        for node in walk(part):
            if not isinstance(node, cst.Name) or not _is_mention(module, node):
                continue
            owner = module.scopes.lookup(node.value, node)
            if owner is not None and owner[0].node in around and not isinstance(owner[0].node, cst.Module):
                found.setdefault(node.value, Capture(node.value, *owner)).reads.append(node)
    return found


def mentions(module: Module, name: str) -> list[cst.Name]:
    """Every place where ``name`` stands for a variable, whichever one: reads, targets and ``del``, no definitions."""
    return module.once(_all_mentions).get(name, [])


def _all_mentions(module: Module) -> dict[str, list[cst.Name]]:
    index: dict[str, list[cst.Name]] = {}
    for node in module.find(cst.Name):
        if _is_mention(module, node):
            index.setdefault(node.value, []).append(node)
    return index


def reads_of(module: Module, name: str, scope: Scope) -> list[cst.Name]:
    """Where the variable ``name`` of ``scope`` is mentioned, also in the functions inside it."""
    owners = ((node, module.scopes.lookup(name, node)) for node in mentions(module, name))
    return [node for node, owner in owners if owner is not None and owner[0] is scope]


def _is_mention(module: Module, node: cst.Name) -> bool:
    if not is_read(module, node):
        return False
    parent = module.parents[node]
    while isinstance(parent, cst.Attribute):
        parent = module.parents[parent]
    return not isinstance(parent, cst.ImportAlias | cst.ImportFrom | cst.MatchKeywordElement)


def is_variable(module: Module, name: cst.CSTNode) -> bool:
    """Whether a name node is a variable, not an attribute or keyword of the same spelling."""
    parent = module.parents[name]
    if isinstance(parent, cst.Attribute):
        return parent.value is name
    return not (isinstance(parent, cst.Arg) and parent.keyword is name)


def parts_in(module: Module, code: Sequence[cst.CSTNode]) -> list[cst.CSTNode]:
    """What ``code`` has of the module, which the line that ``statements_of`` makes of a suite is not part of."""
    return [part for one in code for part in ((one,) if one in module.parents else code_children(one))]


def uses(module: Module, code: Sequence[cst.CSTNode], name: str) -> list[cst.Name]:
    """Places in ``code`` where ``name`` stands for a variable."""
    within = set(parts_in(module, code))
    return [
        one
        for one in module.named(name)
        if is_variable(module, one) and not within.isdisjoint((one, *module.ancestors(one)))
    ]


def is_read(module: Module, name: cst.Name | cst.Attribute) -> bool:
    """Whether a name node is a variable being read (not an attribute, a keyword or a target)."""
    parent = module.parents[name]
    if not is_variable(module, name):
        return False
    if isinstance(parent, cst.Param | cst.FunctionDef | cst.ClassDef):
        return parent.name is not name
    return not isinstance(parent, cst.AssignTarget | cst.NameItem | cst.ImportAlias | cst.AsName)
