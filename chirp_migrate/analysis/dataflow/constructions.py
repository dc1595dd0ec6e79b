"""Find the constructor calls of a class that is defined inside a function."""

from __future__ import annotations

import libcst as cst

from chirp_migrate.analysis.dataflow.capture_timing import is_always_assigned_before
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import contains_node, find_names


def constructor_calls(module: Module, node: cst.ClassDef | cst.Assign, class_name: str) -> list[cst.Call] | None:
    """Return the constructor calls of the class ``class_name``, which the statement ``node`` defines.

    The result is ``None`` if code outside the class does anything with the class except calling it, passes ``*`` or
    ``**`` in a call, or may call the class before the definition runs. The result is also ``None`` if no code calls the
    class.
    """
    calls: list[cst.Call] = []
    for mention in find_names(module.enclosing_function(node) or module.tree, class_name):
        if contains_node(module, node, mention):
            continue
        parent = module.parents[mention]
        if isinstance(parent, cst.Attribute | cst.Arg) and parent.value is not mention:
            continue
        if not isinstance(parent, cst.Call) or any(argument.star for argument in parent.args):
            return None
        calls.append(parent)
    owner = module.scopes.lookup(class_name, node)
    if owner is None or any(not is_always_assigned_before(module, call, owner) for call in calls):
        return None
    return calls or None
