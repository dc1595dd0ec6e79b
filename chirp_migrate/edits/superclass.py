"""Rewrite a dataset class as a subclass of a class of ``chirpid_patch``.

The ``__init__`` of the class of ``chirpid_patch`` stores the attributes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import block_statements, names_in_code
from chirp_migrate.edits.call_arguments import call_text
from chirp_migrate.edits.statements import delete_definition, delete_lines_of_statement
from chirp_migrate.plans.plan import Edit
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module, find_nodes, walk_code
from chirp_migrate.syntax.queries import is_self_attribute, is_super_init, methods_of, target_value_pairs

_NEEDS_NO_BRACKETS = (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call)


@dataclass
class InitAttributeAssignment:
    """An assignment ``self.attribute = value`` in ``__init__``.

    Attributes:
        attribute: name of the attribute.
        value: source of the value.
        statement: the statement that contains the assignment.
        alone: whether the statement assigns only this attribute.
    """

    attribute: str
    value: str
    statement: cst.CSTNode
    alone: bool


def find_init_assignments(module: Module, init: cst.FunctionDef) -> list[InitAttributeAssignment]:
    """Return the assignments of attributes in ``__init__``.

    The result ends before the first statement that uses ``self`` in another way.
    """
    assignments: list[InitAttributeAssignment] = []
    for statement in () if init.decorators else _method_statements(init):
        if is_super_init(statement):
            continue
        read = (
            _merge_branches(module, statement, assignments)
            if isinstance(statement, cst.If)
            else _stores_in_line(module, statement)
        )
        if not read and "self" in names_in_code(statement):
            break
        assignments += read
    return assignments


def _method_statements(init: cst.FunctionDef) -> Sequence[cst.CSTNode]:
    """Return the statements of a method.

    If the statements are on the same line as ``def``, the only item is the suite that contains them.
    """
    return init.body.body if isinstance(init.body, cst.IndentedBlock) else [init.body]


def _stores_in_line(module: Module, line: cst.CSTNode) -> list[InitAttributeAssignment]:
    """Return the assignments of attributes in a line; an empty list if the line also contains other code."""
    found: list[InitAttributeAssignment] = []
    for small in line.body if isinstance(line, cst.SimpleStatementLine | cst.SimpleStatementSuite) else ():
        match small:
            case cst.AnnAssign(target=annotated, value=cst.BaseExpression() as value):
                targets = [annotated]
            case cst.Assign(value=value):
                targets = [one.target for one in small.targets]
            case _:
                return []
        for target, expression in (pair for one in targets for pair in target_value_pairs(one, value)):
            if not isinstance(target, cst.Attribute) or not is_self_attribute(target):
                return []
            found.append(InitAttributeAssignment(target.attr.value, module.source(expression), line, False))
    for store in found:
        store.alone = len(found) == 1
    return found


def _merge_branches(
    module: Module, statement: cst.If, above: list[InitAttributeAssignment]
) -> list[InitAttributeAssignment]:
    """Convert an ``if`` statement that assigns attributes to one assignment for each attribute.

    The value of such an assignment is ``x if c else y``.

    The statement has the form ``if c: self.a = x`` with ``else: self.a = y``. Without ``else``, ``y`` is the value of
    the assignment to ``self.a`` in the list ``above``. This assignment is removed from ``above``.
    """
    then, otherwise = _values_in_branch(module, statement.body), {}
    if isinstance(statement.orelse, cst.Else):
        otherwise = _values_in_branch(module, statement.orelse.body)
    elif statement.orelse is None:
        earlier = {one.attribute: one for one in above if one.attribute in then}
        otherwise = {attribute: one.value for attribute, one in earlier.items()}
        for one in earlier.values():
            above.remove(one)
    if then.keys() != otherwise.keys():
        return []
    alone = len(then) == 1 and statement.orelse is not None
    condition = _operand(module.source(statement.test))
    return [
        InitAttributeAssignment(
            attribute, f"{_operand(then[attribute])} if {condition} else {_operand(other)}", statement, alone
        )
        for attribute, other in otherwise.items()
    ]


def _values_in_branch(module: Module, branch: cst.BaseSuite) -> dict[str, str]:
    """Return the value of each attribute that a branch assigns; empty if the branch contains any other statement."""
    lines = [_stores_in_line(module, line) for line in block_statements(branch)]
    return {store.attribute: store.value for line in lines for store in line} if all(lines) else {}


def _operand(source: str) -> str:
    value = ast.parse(f"({source})", mode="eval").body
    return source if isinstance(value, _NEEDS_NO_BRACKETS) else f"({source})"


def _reads_self(module: Module, statement: cst.CSTNode) -> bool:
    attributes = () if is_super_init(statement) else (node for node in walk_code(statement) if is_self_attribute(node))
    return any(not isinstance(module.parents[attribute], cst.AssignTarget) for attribute in attributes)


def _obsolete_methods(module: Module, methods: Mapping[str, cst.FunctionDef]) -> list[str]:
    """Return the names of the methods that the new base class replaces.

    The result contains ``__getitem__``, ``__len__``, and the private methods that only these two methods use.
    """
    gone: list[str] = [key for key in ("__getitem__", "__len__") if key in methods]
    for key in gone:
        for other, method in methods.items():
            users = {k for k, f in methods.items() if f"self.{other}" in module.source(f)}
            private = other.startswith("_") and not other.startswith("__")
            if private and other not in gone and not method.decorators and key in users <= {*gone, other}:
                gone.append(other)
    return gone


def superclass_edits(
    module: Module,
    node: cst.ClassDef,
    assignments: Sequence[InitAttributeAssignment],
    base: str,
    arguments: Sequence[str],
    passed_assignments: Sequence[InitAttributeAssignment],
    base_attributes: frozenset[str],
    code_style: CodeStyle,
) -> tuple[Edit, ...] | str:
    """Return edits that turn a class into a subclass of ``base``, or the reason why this is not possible.

    Args:
        module: the module of the class.
        node: the class, which has an ``__init__`` and one base.
        assignments: the assignments of attributes in ``__init__`` of the class.
        base: name of the class of ``chirpid_patch`` that becomes the new base class.
        arguments: source of the arguments of ``super().__init__``.
        passed_assignments: the assignments whose values are among ``arguments``.
        base_attributes: names of the attributes that the new base class sets.
        code_style: how the project formats its code.
    """
    methods = methods_of(node)
    late = [s for s in assignments if s not in passed_assignments and s.attribute in base_attributes]
    gone = [s for s in passed_assignments if s.attribute in base_attributes]
    kept = [s.attribute for s in passed_assignments if s.attribute not in base_attributes]
    others = (method for key, method in methods.items() if key != "__init__")
    targets = (one.target for method in others for one in find_nodes(method, cst.AssignTarget))
    if any(not store.alone for store in (*gone, *late)):
        return "one statement of `__init__` stores several attributes"
    if kept and any(is_self_attribute(target, *kept) for target in targets):
        return "a method assigns one of the attributes that the samples depend on"
    if any(re.search(r"\bself\b", store.value) for store in passed_assignments):
        return "`__init__` computes attributes from other attributes"
    statements = list(_method_statements(methods["__init__"]))
    anchor = max(gone, key=lambda store: statements.index(store.statement)).statement
    replaced = [store.statement for store in (*gone, *late)]
    above = statements[: statements.index(anchor)]
    if any(_reads_self(module, one) for one in above if one not in replaced):
        return "`__init__` reads attributes that the new base class sets later"
    indent = module.indentation(module.span(anchor)[0])
    lines = [call_text(module, code_style, "super().__init__", arguments, indent=indent)]
    lines += [f"self.{store.attribute} = {store.value}" for store in late]
    removed = dict.fromkeys([*replaced, *filter(is_super_init, statements)])
    return (
        Edit(*module.span(anchor), f"{module.newline}{indent}".join(lines)),
        *(delete_lines_of_statement(module, one) for one in removed if one is not anchor),
        *(delete_definition(module, methods[key]) for key in _obsolete_methods(module, methods)),
        Edit(*module.span(node.bases[0].value), base),
    )
