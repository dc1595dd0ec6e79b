"""Make mutants of the rules. In each mutant, one condition under which a rule does not rewrite code is switched off.

There are two kinds of conditions. The first kind is the test of an ``if`` whose body ends in ``return``, ``raise``,
``continue``, ``break`` or an assignment to a variable such as ``problem``. Each part of an ``or`` in this test is a
separate condition. The second kind is each part of an ``and`` that a function returns.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import chirp_migrate
from chirp_migrate.rules import Rule

_ROOT = Path(chirp_migrate.__file__).parent
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
#: Functions that classify code, and do not decide whether it may be rewritten.
_NOT_JUDGING = frozenset(
    [
        "api",
        "base",
        "call_arguments",
        "import_table",
        "imports",
        "module",
        "module_paths",
        "name_resolution",
        "names",
        "plan",
        "project",
        "settings",
        "source",
        "spans",
        "statements",
    ]
)


@dataclass(frozen=True)
class Mutant:
    """One condition that is switched off: it is never true or, as part of an ``and``, always true.

    Attributes:
        module, function, line: module, qualified name of the function, and line of the condition.
        text: the condition.
        code: code of the function with the condition switched off.
    """

    module: str
    function: str
    line: int
    text: str
    code: CodeType

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Return a context in which the condition is switched off in this process."""
        function = _function(importlib.import_module(self.module), self.function)
        before = function.__code__
        function.__code__ = self.code
        forget()
        try:
            yield
        finally:
            function.__code__ = before
            forget()

    @property
    def place(self) -> tuple[str, int]:
        """Return the file and first line of the function."""
        return self.code.co_filename, self.code.co_firstlineno


def forget() -> None:
    """Clear the caches of the engine, because a condition that is switched off may change their values."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("chirp_migrate.") and name != "chirp_migrate.rules":
            for one in vars(module).values():
                if callable(getattr(one, "cache_clear", None)):
                    one.cache_clear()


def judging_modules(rule: Rule) -> set[str]:
    """Return the modules of the engine with conditions of ``rule``, including its own module."""
    found: set[str] = set()
    pending = [type(rule).__module__]
    while pending:
        name = pending.pop()
        if name in found or name.rpartition(".")[2] in _NOT_JUDGING:
            continue
        found.add(name)
        for node in ast.walk(ast.parse(_file(name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                pending += [one for one in names if _file(one).is_file()]
    return found


def mutants_of(name: str) -> Iterator[Mutant]:
    """Yield all mutants of the module ``name``, from top to bottom."""
    text = _file(name).read_text(encoding="utf-8")
    lines = ast.parse(text)
    for place, (function, condition) in enumerate(_conditions(lines)):
        tree = ast.parse(text)
        _, (_, chosen) = next(one for one in enumerate(_conditions(tree)) if one[0] == place)
        chosen.off()
        code = _code(compile(ast.fix_missing_locations(tree), str(_file(name)), "exec"), function.split("."))
        yield Mutant(name, function, condition.node.lineno, ast.unparse(condition.node), code)


@dataclass(frozen=True)
class _Condition:
    node: ast.expr
    put: Callable[[ast.expr], None]
    value: bool

    def off(self) -> None:
        """Replace the result of the condition by ``value``.

        The condition is still evaluated, because it may bind names with ``:=``.
        """
        operator = ast.Or() if self.value else ast.And()
        self.put(ast.BoolOp(operator, [self.node, ast.Constant(self.value)]))


def _conditions(tree: ast.Module) -> Iterator[tuple[str, _Condition]]:
    for function, node in _functions(tree.body, ""):
        for one in ast.walk(node):
            if isinstance(one, ast.If) and (isinstance(one.body[-1], _ENDS) or _finds_problem(one.body[-1])):
                for condition in _parts(one, "test", ast.Or, False):
                    yield function, condition
            elif (
                isinstance(one, ast.Return) and isinstance(one.value, ast.BoolOp) and isinstance(one.value.op, ast.And)
            ):
                for condition in _parts(one, "value", ast.And, True):
                    yield function, condition


def _parts(owner: Any, field: str, operator: type[ast.boolop], value: bool) -> Iterator[_Condition]:
    whole = getattr(owner, field)
    if not (isinstance(whole, ast.BoolOp) and isinstance(whole.op, operator)):
        yield _Condition(whole, lambda new: setattr(owner, field, new), value)
        return
    for place, part in enumerate(whole.values):
        yield _Condition(part, lambda new, place=place: whole.values.__setitem__(place, new), value)  # type: ignore[misc]


def _finds_problem(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.startswith("prob")
    )


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")


def _code(code: CodeType, names: list[str]) -> CodeType:
    for name in names:
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
    return code


def _function(module: ModuleType, qualified: str) -> FunctionType:
    found: Any = module
    for name in qualified.split("."):
        found = inspect.getattr_static(found, name)
    for attribute in ("fget", "func", "__func__"):
        found = getattr(found, attribute, found)
    found = inspect.unwrap(found)
    assert isinstance(found, FunctionType), qualified
    return found


def _file(name: str) -> Path:
    path = _ROOT.parent.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
