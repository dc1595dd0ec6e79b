"""A dataset class made a subclass of a shipped one: what its ``__init__`` stores, and the edits that hand it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import (
    Evaluator,
    If,
    Name,
    NotStraightLine,
    Opaque,
    Value,
    names_in,
    names_in_code,
    statements_of,
)
from chirp_migrate.analysis.datasets.dataset_meaning import SELF
from chirp_migrate.analysis.datasets.declared_class import evaluator, is_torch_dataset
from chirp_migrate.edits.call_arguments import call_text
from chirp_migrate.edits.statements import block_deletion, line_deletion
from chirp_migrate.plans.plan import Edit
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module, find_in, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import assigned_pairs, is_name, is_on_self, is_super_init, methods_of


@dataclass
class Store:
    """``self.attribute = value`` in ``__init__``."""

    attribute: str
    value: Value
    statement: cst.CSTNode
    alone: bool  # the only store of its statement


@dataclass
class DatasetClass:
    """A class whose base is ``Dataset``, and what its ``__init__`` stores, as far as that is straight-line code."""

    module: Module
    node: cst.ClassDef
    methods: dict[str, cst.FunctionDef]
    stores: list[Store] = field(default_factory=list)

    def assigned_outside_init(self, attribute: str) -> bool:
        """Whether a method other than ``__init__`` assigns ``self.<attribute>``."""
        others = (method for key, method in self.methods.items() if key != "__init__")
        targets = (one.target for method in others for one in find_in(method, cst.AssignTarget))
        return any(is_on_self(target, attribute) for target in targets)


def read_dataset_class(module: Module, project: Project, node: cst.ClassDef) -> DatasetClass | None:
    """Read ``node``; ``None`` when it is not a plain subclass of PyTorch's ``Dataset``."""
    if node.keywords or not is_torch_dataset(module, project, [base.value for base in node.bases]):
        return None
    read = DatasetClass(module, node, methods_of(node))
    if "__init__" in read.methods:
        with suppress(NotStraightLine):
            _read_init(read, read.methods["__init__"])
    return read


def _read_init(read: DatasetClass, init: cst.FunctionDef) -> None:
    if init.decorators or not init.params.params:
        raise NotStraightLine("something unusual in `__init__`")
    env: dict[str, Value] = {p.name.value: Name(p.name.value) for p in init.params.params}
    env[init.params.params[0].name.value] = SELF
    reader = evaluator(read.module, read.node)
    if isinstance(init.body, cst.SimpleStatementSuite):
        if not _stores(init.body.body, read, init.body, reader, env):
            raise NotStraightLine("something unusual in `__init__`")
        return
    for statement in init.body.body:
        if is_super_init(statement):
            continue
        if isinstance(statement, cst.SimpleStatementLine) and _stores(statement.body, read, statement, reader, env):
            continue
        if isinstance(statement, cst.If) and _store_by_branch(statement, read, reader, env):
            continue
        if "self" in names_in_code(statement):
            raise NotStraightLine(f"`{read.module.source(statement).strip().splitlines()[0]}` in `__init__`")
        kinds = cst.AssignTarget | cst.AnnAssign | cst.AugAssign
        assigned = (one.target for one in walk(statement) if isinstance(one, kinds))
        env |= {name: Name(name) for target in assigned for name in names_in_code(target)}


def _stores(
    body: Sequence[cst.CSTNode],
    read: DatasetClass,
    statement: cst.CSTNode,
    reader: Evaluator,
    env: Mapping[str, Value],
) -> bool:
    """Record the stores of a line that does nothing else; ``False`` when it does something else."""
    found: list[Store] = []
    for small in body:
        match small:
            case cst.AnnAssign(target=annotated, value=cst.BaseExpression() as value):
                targets = [annotated]
            case cst.Assign(value=value):
                targets = [one.target for one in small.targets]
            case _:
                return False
        for target, expression in (pair for one in targets for pair in assigned_pairs(one, value)):
            if not isinstance(target, cst.Attribute) or not is_name(target.value, "self"):
                return False
            kept = reader.expression(expression, env)
            if str(kept) != read.module.source(expression):
                kept = Opaque(read.module.source(expression))
            found.append(Store(target.attr.value, kept, statement, False))
    for store in found:
        store.alone = len(found) == 1
    read.stores += found
    return bool(found)


def _store_by_branch(statement: cst.If, read: DatasetClass, reader: Evaluator, env: Mapping[str, Value]) -> bool:
    """``if c: self.a = x`` / ``else: self.a = y`` as one store of ``x if c else y``."""
    sides: list[dict[str, Value]] = []
    branches = [statement.body, statement.orelse.body if isinstance(statement.orelse, cst.Else) else None]
    if statement.orelse is not None and branches[1] is None:
        return False
    for branch in branches:
        inner = DatasetClass(read.module, read.node, {})
        if branch is not None:
            for line in statements_of(branch):
                if not isinstance(line, cst.SimpleStatementLine) or not _stores(line.body, inner, line, reader, env):
                    return False
        sides.append({store.attribute: store.value for store in inner.stores})
    if not sides[0] or (branches[1] is not None and sides[0].keys() != sides[1].keys()):
        return False
    condition = reader.expression(statement.test, env)
    earlier = {store.attribute: store for store in read.stores}
    for attribute, value in sides[0].items():
        if branches[1] is not None:
            otherwise = sides[1][attribute]
        elif attribute in earlier:
            otherwise = earlier[attribute].value
            read.stores.remove(earlier[attribute])
            earlier[attribute].alone = True
        else:
            return False
        merged = If(condition, value, otherwise)
        read.stores.append(Store(attribute, merged, statement, len(sides[0]) == 1 and branches[1] is not None))
    return True


def _reads_self(module: Module, statement: cst.CSTNode) -> bool:
    """Whether a statement reads an attribute of ``self``."""
    if is_super_init(statement):
        return False
    attributes = (one for one in walk(statement) if is_on_self(one))
    return any(not isinstance(module.parents[attribute], cst.AssignTarget) for attribute in attributes)


def obsolete_methods(read: DatasetClass) -> list[str]:
    """``__getitem__``, ``__len__`` and the private methods that only they use."""
    gone: list[str] = [key for key in ("__getitem__", "__len__") if key in read.methods]
    for key in gone:
        for other, method in read.methods.items():
            users = {k for k, f in read.methods.items() if f"self.{other}" in read.module.source(f)}
            private = other.startswith("_") and not other.startswith("__")
            if private and other not in gone and not method.decorators and key in users <= {*gone, other}:
                gone.append(other)
    return gone


def superclass_edits(
    read: DatasetClass,
    base: str,
    arguments: Sequence[str],
    consumed: Sequence[Store],
    provided: frozenset[str],
    style: CodeStyle,
) -> tuple[Edit, ...] | str:
    """Edits that turn the class into a subclass of ``base``; or the reason why not.

    Args:
        base: name of the shipped class.
        arguments: source of the arguments of ``super().__init__``.
        consumed: stores whose values the shipped class now holds.
        provided: attributes that the shipped class itself has.
        style: how the project lays out its code.
    """
    module, init = read.module, read.methods.get("__init__")
    if init is None:
        return "it has no `__init__`"
    late = [s for s in read.stores if s not in consumed and s.attribute in provided]
    gone = [s for s in consumed if s.attribute in provided]
    if any(not store.alone for store in (*gone, *late)):
        return "one statement of its `__init__` stores several attributes"
    if not gone:
        return "its attributes have other names than the shipped class keeps"
    if any(read.assigned_outside_init(store.attribute) for store in consumed if store.attribute not in provided):
        return "a method assigns one of the attributes that the samples depend on"
    statements: list[cst.CSTNode] = list(init.body.body) if isinstance(init.body, cst.IndentedBlock) else [init.body]
    anchor = max(gone, key=lambda store: statements.index(store.statement)).statement
    if any("self" in names_in(store.value) for store in consumed):
        return "what it stores is computed from its own attributes"
    for statement in statements[: statements.index(anchor)]:
        if statement not in [store.statement for store in (*gone, *late)] and _reads_self(module, statement):
            return "its `__init__` reads attributes that the shipped class sets later"
    indent = module.indentation(module.span(anchor)[0])
    lines = [call_text(module, style, "super().__init__", arguments, indent=indent)]
    lines += [f"self.{store.attribute} = {store.value}" for store in late]
    edits = [Edit(*module.span(anchor), f"{module.newline}{indent}".join(lines))]
    removed = {id(store.statement): store.statement for store in (*gone, *late)}
    removed |= {id(s): s for s in statements if is_super_init(s)}
    edits += [line_deletion(module, s) for s in removed.values() if s is not anchor]
    edits += [block_deletion(module, read.methods[key]) for key in obsolete_methods(read)]
    edits.append(Edit(*module.span(read.node.bases[0].value), base))
    return tuple(edits)
