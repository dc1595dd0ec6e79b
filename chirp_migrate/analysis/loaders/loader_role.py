"""Infer the role of a loader from the call that builds it: training, validation or test."""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import assigned_values
from chirp_migrate.analysis.known_names import is_call_of
from chirp_migrate.syntax.module import Module, find_nodes
from chirp_migrate.syntax.queries import contains_node, is_name, target_value_pairs

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ROLES = {
    "training": re.compile(r"(?<![a-z])(?:re|pre)?train"),
    "validation": re.compile(r"(?<![a-z])(?:val(?!u)|eval|dev(?![a-z])|holdout)"),
    "test": re.compile(r"(?<![a-z])test"),
}
#: A role other than training.
_OTHER = "other"
#: Words in the names of functions that train and validate, such as ``cross_validate``.
_BOTH = re.compile(r"(?<![a-z])(?:cross|k?folds?(?![a-z])|fit(?![a-z]))")
#: Keyword arguments of datasets that select a part of the data, with True or False, or with the name of the part.
_PARTS = frozenset({"train", "is_train", "training", "split", "subset", "mode", "phase", "partition"})
#: Classes of samplers. Calling such a class never returns None.
_SAMPLER = re.compile(
    r"torch\.utils\.data\.((sampler|distributed)\.)?"
    r"(Batch|Distributed|Random|Sequential|SubsetRandom|WeightedRandom)Sampler"
)
#: Test files. The word "test" in the name of a function of such a file does not mean the role.
_TESTS = re.compile(r"(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")


def loader_role(module: Module, call: cst.Call, arguments: Mapping[str, cst.BaseExpression]) -> str:
    """Return the role of the loader that ``call`` builds with ``arguments`` (by name of the parameter).

    The role comes from the names of the loader and its dataset, and from arguments of the dataset's constructor, such
    as ``split="val"``. If these show no role, the role comes from the names of the enclosing functions.

    Returns:
        The role ``training``, ``validation`` or ``test``, for which the factory has a method such as
        ``create_training_loader``. The result is "" if the role is not clear, or if the factory's method would behave
        differently from the call.
    """
    named = {_role_in_name(_assigned_name(module, call)), *_roles_of_dataset(module, arguments["dataset"])} - {""}
    by_names = _only_role(named - {_OTHER})
    around = _role_by_functions(module, call) if by_names == "" else ""
    role = by_names or around
    given = {name for name, value in arguments.items() if not is_name(value, "False", "None")}
    samplers = [arguments[name] for name in ("sampler", "batch_sampler") if name in given]
    shuffle = arguments.get("shuffle")
    if role == "training":
        # The factory's method shuffles by default, also if the expression for the sampler is None at run time.
        shuffles = shuffle is not None and not is_name(shuffle, "False")
        is_sampled = any(_is_sampler(module, one) for one in samplers)
        return role if _OTHER not in named and (shuffles or is_sampled) else ""
    drops = arguments.get("drop_last")
    if (drops is not None and not is_name(drops, "False")) or (around and is_name(shuffle, "True")):
        return ""  # the factory's methods for validation and test drop no samples and do not shuffle
    return role or ""


def _only_role(roles: set[str | None]) -> str | None:
    """Return the role if ``roles`` contains exactly one role; "" for no role, ``None`` for several roles."""
    return next(iter(roles)) if len(roles) == 1 else None if roles else ""


def _role_by_functions(module: Module, call: cst.Call) -> str | None:
    """Return the role of the innermost enclosing function whose name contains a role, such as ``make_train_loader``.

    The result is "" without such a function. It is ``None`` if the role is not clear: the name contains several roles,
    or the name of a function that trains contains a role other than training, as ``cross_validate`` does.
    """
    if _TESTS.search(module.path) is not None:
        return ""
    functions = (one for one in module.ancestors(call) if isinstance(one, cst.FunctionDef))
    for function, role in ((one, _role_in_name(one.name.value)) for one in functions):
        if role != "":
            return role if role == "training" or not _trains(function) else None
    return ""


def _trains(function: cst.FunctionDef) -> bool:
    """Return whether the name or code of a function shows that it trains a model."""
    named = _BOTH.search(_CAMEL.sub("_", function.name.value).lower()) is not None
    return named or any(is_name(one.attr, "backward") for one in find_nodes(function.body, cst.Attribute))


def _role_in_name(name: str) -> str | None:
    """Return the role that a name contains; "" for no role, ``None`` for several roles."""
    words = _CAMEL.sub("_", name).lower()
    found = [role for role, pattern in _ROLES.items() if pattern.search(words)]
    return None if len(found) > 1 else found[0] if found else ""


def _roles_of_dataset(module: Module, dataset: cst.BaseExpression) -> set[str | None]:
    """Return the roles in the name of a dataset, and in the arguments of its constructor."""
    name = _last_name(module, dataset)
    values = [one.value for one in assigned_values(module, dataset) if one.part is None] if name else [dataset]
    made = values[0] if len(values) == 1 else None
    parts = [one for one in made.args if is_name(one.keyword, *_PARTS)] if isinstance(made, cst.Call) else []
    return {_role_in_name(name), *(_role_of_argument(module, one) for one in parts)}


def _role_of_argument(module: Module, argument: cst.Arg) -> str | None:
    """Return the role that an argument such as ``split="val"`` or ``train=True`` shows.

    The argument ``train=False`` only shows that the role is not training.
    """
    if is_name(argument.value, "False"):
        return _OTHER
    name = argument.keyword.value if argument.keyword is not None else ""
    return _role_in_name(name if is_name(argument.value, "True") else module.source(argument.value))


def _assigned_name(module: Module, call: cst.Call) -> str:
    """Return the name of the variable, parameter or key that receives the loader from ``call``.

    The result is "" if the code around the call has no such name.
    """
    for ancestor in module.ancestors(call):
        if isinstance(ancestor, cst.Assign | cst.AnnAssign):
            target = ancestor.targets[0].target if isinstance(ancestor, cst.Assign) else ancestor.target
            pairs = target_value_pairs(target, ancestor.value) if ancestor.value is not None else ()
            plain = ((one, value) for one, value in pairs if not isinstance(value, cst.Tuple))
            return next((_last_name(module, one) for one, value in plain if contains_node(module, value, call)), "")
        if isinstance(ancestor, cst.Arg) and ancestor.keyword is not None:
            return ancestor.keyword.value
        if isinstance(ancestor, cst.DictElement):
            return module.source(ancestor.key)
        if isinstance(ancestor, cst.BaseStatement | cst.BaseSmallStatement):
            return ""
    return ""


def _last_name(module: Module, node: cst.BaseExpression) -> str:
    """Return ``val_set`` for ``self.val_set``, ``'val'`` for ``sets['val']``, "" for an expression without a name."""
    match node:
        case cst.Attribute(attr=cst.Name(value=name)) | cst.Name(value=name):
            return name
        case cst.Subscript(value=owner, slice=[first, *_]):
            key = module.source(first)
            return _last_name(module, owner) if key.isdigit() else key
    return ""


def _is_sampler(module: Module, node: cst.BaseExpression) -> bool:
    """Return whether an expression builds a sampler of PyTorch, or is a local variable that only has such values.

    Any other call may return None.
    """
    if not isinstance(node, cst.Name):
        return is_call_of(module, node, _SAMPLER)
    found = module.scopes.lookup(node.value, node)
    targets = [one.node for one in found.bindings] if found and isinstance(found.scope.node, cst.FunctionDef) else []
    assignments = [module.parents.get(one) for one in targets if isinstance(one, cst.AssignTarget)]
    values = [one.value for one in assignments if isinstance(one, cst.Assign)]
    return bool(values) and len(values) == len(targets) and all(is_call_of(module, one, _SAMPLER) for one in values)
