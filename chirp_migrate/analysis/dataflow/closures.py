"""Captured names: what a function, lambda or class uses of its enclosing functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from chirp_migrate.syntax.module import Module, code_children, walk
from chirp_migrate.syntax.queries import Mention, is_read, mention
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
        """Return whether an import inside the function gives it its value, at least in one place."""
        return any(binding.kind is Kind.IMPORT for binding in self.bindings)


def captures(module: Module, *parts: cst.CSTNode) -> dict[str, Capture]:
    """Names read in ``parts`` that belong to functions, classes or comprehensions around them, in order of first use.

    Of a function, ``parts`` are its body, or its defaults, which are evaluated outside of it.
    """
    found: dict[str, Capture] = {}
    for part in parts:
        around = {ancestor for ancestor in module.ancestors(part) if getattr(ancestor, "body", None) is not part}
        for node in walk(part):
            if not isinstance(node, cst.Name) or not is_read(module, node):
                continue
            owner = module.scopes.lookup(node.value, node)
            if owner is not None and owner.scope.node in around and not isinstance(owner.scope.node, cst.Module):
                found.setdefault(node.value, Capture(node.value, *owner)).reads.append(node)
    return found


def reads_of(module: Module, name: str, scope: Scope) -> list[cst.Name]:
    """Yield where code reads, changes or deletes the variable ``name`` of ``scope``, inner functions included."""
    reads = (node for node in module.named(name) if is_read(module, node))
    owners = ((node, module.scopes.lookup(name, node)) for node in reads)
    return [node for node, owner in owners if owner is not None and owner.scope is scope]


def variable_mentions(module: Module, name: str, scope: Scope) -> list[cst.Name]:
    """Return every place where ``name`` refers to the variable of ``scope``, for every use."""
    variables = (one for one in module.named(name) if mention(module, one) is not Mention.LABEL)
    owners = ((variable, module.scopes.lookup(name, variable)) for variable in variables)
    return [one for one, owner in owners if owner is not None and owner[0] is scope]


def parts_in(module: Module, code: Sequence[cst.CSTNode]) -> list[cst.CSTNode]:
    """Return what ``code`` has of the module, which the line that ``statements_of`` makes of a suite is not part of."""
    return [part for one in code for part in ((one,) if one in module.parents else code_children(one))]


def uses(module: Module, code: Sequence[cst.CSTNode], name: str) -> list[cst.Name]:
    """Yield places in ``code`` where ``name`` refers to a variable."""
    within = set(parts_in(module, code))
    return [
        one
        for one in module.named(name)
        if mention(module, one) is not Mention.LABEL and not within.isdisjoint((one, *module.ancestors(one)))
    ]
