"""Find captured names: the variables of enclosing functions that a function, lambda or class uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from chirp_migrate.syntax.module import Module, code_children, walk_code
from chirp_migrate.syntax.queries import NameRole, is_read, name_role
from chirp_migrate.syntax.scopes import Binding, BindingKind, Scope


@dataclass(frozen=True, eq=False)
class CapturedName:
    """A captured name: a variable of an enclosing function that inner code reads.

    A variable of an enclosing class body or comprehension counts, too.

    Attributes:
        name: the name.
        scope: the enclosing scope that binds the variable.
        bindings: all places that bind the variable.
        reads: the places in the inner code that read the variable.
    """

    name: str
    scope: Scope
    bindings: list[Binding]
    reads: list[cst.Name] = field(default_factory=list)

    @property
    def is_import(self) -> bool:
        """Return whether at least one binding of the name is an import inside the function."""
        return any(binding.kind is BindingKind.IMPORT for binding in self.bindings)


def captured_names(module: Module, *parts: cst.CSTNode) -> dict[str, CapturedName]:
    """Return the captured names that the nodes ``parts`` read, in order of first use.

    A captured name is a variable of a function, class or comprehension around a part. To find the captured names of a
    function, pass the function's body. Pass the parameter defaults of the function in a separate call, because Python
    evaluates the defaults outside the function.
    """
    found: dict[str, CapturedName] = {}
    for part in parts:
        around = {ancestor for ancestor in module.ancestors(part) if getattr(ancestor, "body", None) is not part}
        for node in walk_code(part):
            if not isinstance(node, cst.Name) or not is_read(module, node):
                continue
            owner = module.scopes.lookup(node.value, node)
            if owner is not None and owner.scope.node in around and not isinstance(owner.scope.node, cst.Module):
                found.setdefault(node.value, CapturedName(node.value, *owner)).reads.append(node)
    return found


def variable_reads(module: Module, name: str, scope: Scope) -> list[cst.Name]:
    """Return the places that read, change or delete the variable ``name`` of ``scope``, also in inner functions."""
    reads = (node for node in module.named(name) if is_read(module, node))
    owners = ((node, module.scopes.lookup(name, node)) for node in reads)
    return [node for node, owner in owners if owner is not None and owner.scope is scope]


def variable_mentions(module: Module, name: str, scope: Scope) -> list[cst.Name]:
    """Return every place, such as a read or an assignment, where ``name`` refers to the variable of ``scope``.

    Places in inner functions count, too.
    """
    variables = (one for one in module.named(name) if name_role(module, one) is not NameRole.LABEL)
    owners = ((variable, module.scopes.lookup(name, variable)) for variable in variables)
    return [one for one, owner in owners if owner is not None and owner[0] is scope]


def nodes_of_original_tree(module: Module, nodes: Sequence[cst.CSTNode]) -> list[cst.CSTNode]:
    """Return each given node, or its children if the node itself is not in the module's syntax tree.

    The function ``block_statements`` creates nodes outside of the tree for blocks on the line of their header, as in
    ``if x: return y``. All returned nodes belong to the tree.
    """
    return [part for one in nodes for part in ((one,) if one in module.parents else code_children(one))]


def variable_uses(module: Module, code: Sequence[cst.CSTNode], name: str) -> list[cst.Name]:
    """Return the places in ``code`` where ``name`` is a variable, and not the name of an attribute or keyword."""
    within = set(nodes_of_original_tree(module, code))
    return [
        one
        for one in module.named(name)
        if name_role(module, one) is not NameRole.LABEL and not within.isdisjoint((one, *module.ancestors(one)))
    ]
