"""Compare the public names and signatures of a project's modules before and after the migration."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Signature = list[list[str]]
"""A list with ``[name, kind, default]`` for each parameter. The default is ``""`` if the parameter has no default."""

Api = dict[str, dict[str, Signature | str]]
"""Dictionary: module → public name → signature.

For a module that cannot be imported, the inner dictionary has only the key ``""``, whose value is the reason. The
dictionary omits names that do not exist in the module. For an object without a signature, the value is the name of its
type.
"""

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTED = "utils."
_LEFT_OUT = frozenset({"tests", "test", "conftest", "setup", "docs", "examples", "build", "dist", "venv"})
_NOT_IMPORTED = "the training does not import the module"
_GONE = "the module no longer exists"
_HARMLESS = (*_DEFINITIONS, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.If, ast.Try, ast.Pass)


def public_names(root: Path) -> dict[str, list[str]]:
    """Return a dictionary: module → names of the public functions, classes and methods that its source defines.

    The function reads the modules in ``utils/``. If the project has no folder ``utils/``, the function reads the
    modules in the root, in ``src/`` and in packages. The result omits modules that cannot be parsed. The result also
    omits scripts in ``utils/``. A module counts as a script if its top level contains statements other than imports,
    definitions, assignments, ``if`` and ``try``.
    """
    names: dict[str, list[str]] = {}
    for module, path in _compared_modules(root):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        if not module.startswith(_IMPORTED) or all(isinstance(n, _HARMLESS) or _is_constant(n) for n in tree.body):
            names[module] = [name for node in tree.body for name in _defined_names(node)]
    return names


def _compared_modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the import name and the file of each module whose public names are compared."""
    if (root / "utils").is_dir():
        for path in sorted((root / "utils").glob("*.py")):
            yield "utils" if path.stem == "__init__" else f"utils.{path.stem}", path
        return
    for base in (root, root / "src"):
        files = [
            *base.glob("*.py"),
            *(path for init in base.glob("*/__init__.py") for path in init.parent.rglob("*.py")),
        ]
        for path in sorted(files):
            parts = path.relative_to(base).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if parts and all(part.isidentifier() for part in parts) and not any(p in _LEFT_OUT for p in parts):
                yield ".".join(parts), path


def read_public_signatures(names_by_module: dict[str, list[str]]) -> Api:
    """Import modules of a project, and return the signatures of their public names.

    The function imports only modules of ``utils/``. For a module outside ``utils/``, the result contains signatures
    only if the training has already imported the module. For any other module outside ``utils/``, the result contains
    the reason instead: the training does not import the module, or the module no longer exists.

    Args:
        names_by_module: dictionary, import name of a module → the public names in this module whose signatures are
            read.
    """
    return {module: _read_signatures(module, wanted) for module, wanted in names_by_module.items()}


def _read_signatures(name: str, wanted: list[str]) -> dict[str, Signature | str]:
    if not name.startswith(_IMPORTED) and name not in sys.modules:
        return {"": _NOT_IMPORTED if _module_exists(name) else _GONE}
    try:
        module = importlib.import_module(name)
    except Exception as error:  # any error of the user's module becomes part of the result
        return {"": f"{type(error).__name__}: {error}"}
    signatures: dict[str, Signature | str] = {}
    for path in wanted:
        value: Any = module
        for part in path.split("."):
            value = getattr(value, part, None)
        if value is not None:
            signatures[path] = _read_signature(value)
    return signatures


def api_break_sentences(before: Api, after: Api) -> list[str]:
    """Return one sentence for each public name that the migration removed, or that now accepts fewer calls."""
    problems: list[str] = []
    for module, names in before.items():
        now = after.get(module, {"": _GONE})
        if names.get("") == _NOT_IMPORTED and now.get("") == _GONE:
            problems.append(f"{module} can no longer be imported: {_GONE}")
        if "" in names or now.get("") == _NOT_IMPORTED:
            continue
        if "" in now:
            problems.append(f"{module} can no longer be imported: {now['']}")
            continue
        for name, signature in names.items():
            if name not in now:
                problems.append(f"{module}.{name} no longer exists")
            # Callers write ``module(x)`` and not ``module.forward(x=x)``, so the migration may rename the parameter.
            elif isinstance(signature, list) and not _is_compatible(
                now[name], signature, not name.endswith(".forward")
            ):
                changed = f"no longer accepts the same arguments; the new signature is {_signature_text(now[name])}"
                problems.append(f"{module}.{name} {changed}")
    return problems


def _module_exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a package that contained the module no longer exists
        return False


def _is_compatible(after: Signature | str, before: Signature, by_name: bool) -> bool:
    """Return whether every call that fits the signature ``before`` also fits the signature ``after``.

    The signature ``after`` must have all parameters of ``before``, in the same order, with the same kinds and defaults.
    Additional parameters must be optional, and must not come before a parameter that callers can pass by position. The
    names of the parameters must also be the same, unless ``by_name`` is False: callers then pass all arguments by
    position.
    """
    if isinstance(after, str):
        return False
    if not by_name:
        names = [name for name, _, _ in before]
        after = [[name, *rest] for name, (_, *rest) in zip(names, after, strict=False)] + after[len(names) :]
    if [p for p in after if p in before] != before:
        return False
    added = [p for p in after if p not in before]
    by_position = [p for p in after if p[1].startswith("POSITIONAL")]
    in_front = by_position[: sum(p[1].startswith("POSITIONAL") for p in before)]
    return all(p not in in_front and (p[2] or p[1].startswith("VAR")) for p in added)


def _signature_text(signature: Signature | str) -> str:
    if isinstance(signature, str):
        return signature
    return "(" + ", ".join(f"{name}={default}" if default else name for name, _, default in signature) + ")"


def _read_signature(value: Any) -> Signature | str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return type(value).__name__
    return [[p.name, p.kind.name, _default_text(p.default)] for p in parameters]


def _default_text(value: Any) -> str:
    """Return the default value of a parameter as text; an empty string if the parameter has no default.

    The text is the ``repr`` of a plain value such as a number. For any other object, the text is the name of its type,
    because the ``repr`` may contain a memory address.
    """
    if value is inspect.Parameter.empty:
        return ""
    plain = value is None or isinstance(value, (bool, int, float, str, tuple, list, dict))
    return repr(value) if plain else f"<{type(value).__name__}>"


def _defined_names(node: ast.stmt) -> list[str]:
    if not isinstance(node, _DEFINITIONS) or node.name.startswith("_"):
        return []
    names = [node.name]
    if isinstance(node, ast.ClassDef):
        names += [f"{node.name}.{name}" for item in node.body for name in _defined_names(item) if "." not in name]
    return names


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
