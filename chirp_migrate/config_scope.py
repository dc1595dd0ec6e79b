"""Where a training configuration dictionary is within reach of an expression."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from chirp_migrate.module import Module, matching

_CONFIG_NAMES = ("config", "cfg")


def config_expression(module: Module, node: cst.CSTNode) -> str | None:
    """Source of the configuration mapping that ``node`` can read (``self.config`` or ``config``), if there is one.

    Only a mapping that the surrounding code itself reads with ``.get('key')`` or ``.get('key', number)`` counts (None,
    True and False too): a namespace of parsed arguments has no ``get``, and a ConfigParser's takes two names.
    """
    function = module.enclosing_function(node)
    if function is None:
        return None
    owner = module.enclosing_class(node)
    for name in _CONFIG_NAMES:
        if owner is not None and _reads(owner, m.Attribute(m.Name("self"), m.Name(name))) and _has_self(function):
            return f"self.{name}"
        bound = {p.name.value for p in (*function.params.params, *function.params.kwonly_params)}
        bound |= {one for assign in matching(function, m.Assign()) for one in _names(assign)}
        if name in bound and _reads(function, m.Name(name)):
            return name
    return None


def _names(assign: cst.CSTNode) -> set[str]:
    assert isinstance(assign, cst.Assign)
    return {target.target.value for target in assign.targets if isinstance(target.target, cst.Name)}


def _has_self(function: cst.FunctionDef) -> bool:
    return bool(function.params.params) and function.params.params[0].name.value == "self"


def _reads(scope: cst.CSTNode, mapping: m.BaseMatcherNode) -> bool:
    get = m.Attribute(mapping, m.Name("get"))  # type: ignore[arg-type]
    default = m.Integer() | m.Float() | m.Name("None") | m.Name("True") | m.Name("False")
    plain = m.Arg(m.SimpleString(), keyword=None)
    return bool(matching(scope, m.Call(get, [plain]) | m.Call(get, [plain, m.Arg(default, keyword=None)])))
