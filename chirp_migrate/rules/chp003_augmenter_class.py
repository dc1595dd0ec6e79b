"""CHP003: spectrogram masks and noise draw for a whole batch (R-000-1.2)."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterable
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.augmenter_meaning import (
    MASK_PARAMETERS,
    adds_noise_like_gaussian_noise,
    masks_like_spec_augment,
)
from chirp_migrate.imports import runtime
from chirp_migrate.module import Module, matching
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.statements import block_deletion, line_deletion

#: Shipped transform by the parameters that make a class a candidate, and how its meaning is checked.
_SHIPPED: tuple[tuple[str, tuple[str, ...], Callable[[str], str | None]], ...] = (
    ("SpecAugment", MASK_PARAMETERS, masks_like_spec_augment),
    ("GaussianNoise", ("std", "p"), adds_noise_like_gaussian_noise),
)


class WorkerSafeAugmenter(Rule):
    """Requires, of a top-level `nn.Module` of methods only whose `__init__` keeps its parameters and does nothing else:

    - the parameters of a shipped transform, and a `forward` with one gate `random.random()` against `p` in front, which
      returns the sample as it is;
    - masks: a clone, in which two loops over the counts overwrite stretches of the last two axes with `mask_value`,
      widths `random.randint(0, min(parameter, size))`, starts `random.randint(0, size - width)` of the same axis, in
      the loop or in a method of its own; then `return` of the clone;
    - noise: `clamp(x + randn_like(x) * std, 0, 1)`, perhaps through names that are used once;
    - `random` and `torch` that are these modules.
    """

    code: ClassVar[str] = "CHP003"
    name: ClassVar[str] = "worker-safe-augmenter"
    reason: ClassVar[str] = (
        "Masks and noise drawn sample by sample from the global generators are slow and depend on which worker loads "
        "what. The shipped transforms draw from the same distributions for a whole batch, keyed by sample, so that a "
        "run repeats with any number of workers. The class keeps its name and constructor."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("time_mask_param", "randn_like")

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite top-level ``nn.Module`` classes that draw like a shipped transform."""
        for statement in module.tree.body:
            if isinstance(statement, cst.ClassDef):
                proposal = _examine(module, project, statement)
                if proposal is not None:
                    yield proposal


def _examine(module: Module, project: Project, node: cst.ClassDef) -> Proposal | None:
    if len(node.bases) != 1 or not module.qualified_names(node.bases[0].value) <= {
        "torch.nn.Module",
        "torch.nn.modules.Module",
    }:
        return None
    if (
        not module.qualified_names(node.bases[0].value)
        or node.decorators
        or not isinstance(node.body, cst.IndentedBlock)
    ):
        return None
    methods = {s.name.value: s for s in node.body.body if isinstance(s, cst.FunctionDef)}
    init, forward = methods.get("__init__"), methods.get("forward")
    if init is None or forward is None:
        return None
    parameters = tuple(p.name.value for p in init.params.params[1:])
    offset, title = module.span(node.name)[0], node.name.value
    for shipped, expected, check in _SHIPPED:
        if set(parameters) != set(expected):
            continue
        problem = check(textwrap.dedent(module.source(node)))
        if problem is None:
            problem = _init_problem(module, init, parameters)
        if problem is None:
            problem = _names_problem(module, node)
        if problem is None and "random" in ast.unparse(ast.parse(textwrap.dedent(module.source(init)))):
            problem = "its `__init__` draws random numbers"
        if problem is not None:
            return Proposal(offset, f"{title} is left alone, not surely drawing like the shipped {shipped}: {problem}")
        return _rewrite(module, project, node, methods, shipped, parameters)
    return None


def _names_problem(module: Module, node: cst.ClassDef) -> str | None:
    """``random`` and ``torch`` must be the modules, and nothing may stand for Python's own functions."""
    for call in matching(node, m.Call()):
        assert isinstance(call, cst.Call)
        spelled = module.source(call.func)
        meant = f"builtins.{spelled}" if spelled in ("min", "max", "range") else spelled
        if meant.startswith(("builtins.", "random.", "torch.")) and module.qualified_names(call.func) != {meant}:
            return f"`{spelled}` is not what it seems"
    return None


def _init_problem(module: Module, init: cst.FunctionDef, parameters: tuple[str, ...]) -> str | None:
    """``__init__`` must store each parameter under its own name and do nothing else."""
    stored: set[str] = set()
    for statement in init.body.body:
        text = module.source(statement).strip()
        if m.matches(statement, m.SimpleStatementLine([m.Expr(m.SimpleString() | m.ConcatenatedString())])):
            continue
        if m.matches(
            statement,
            m.SimpleStatementLine([m.Expr(m.Call(m.Attribute(m.Call(m.Name("super")), m.Name("__init__"))))]),
        ):
            continue
        match = (
            statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
        )
        if isinstance(match, cst.Assign) and isinstance(match.value, cst.Name):
            name = match.value.value
            if (
                m.matches(match, m.Assign([m.AssignTarget(m.Attribute(m.Name("self"), m.Name(name)))]))
                and name in parameters
            ):
                stored.add(name)
                continue
        return f"its `__init__` does `{text.splitlines()[0]}`"
    return None if stored == set(parameters) else "its `__init__` does not store every parameter"


def _rewrite(
    module: Module,
    project: Project,
    node: cst.ClassDef,
    methods: dict[str, cst.FunctionDef],
    shipped: str,
    parameters: tuple[str, ...],
) -> Proposal:
    init = methods["__init__"]
    assert isinstance(init.body, cst.IndentedBlock)
    clause = f"{shipped} as WorkerSafe{shipped}"
    lines = [s for s in init.body.body if not m.matches(s, m.SimpleStatementLine([m.Expr(m.SimpleString())]))]
    arguments = ", ".join(f"{p}={p}" for p in parameters)
    indent = module.indentation(module.span(lines[0])[0])
    call = f"super().__init__({arguments})"
    if len(indent) + len(call) > 100:
        inner = f",{module.newline}{indent}    ".join(f"{p}={p}" for p in parameters)
        call = f"super().__init__({module.newline}{indent}    {inner},{module.newline}{indent})"
    edits = [
        Edit(*module.span(node.bases[0].value), f"WorkerSafe{shipped}"),
        Edit(*module.span(lines[0]), call),
    ]
    edits += [line_deletion(module, s) for s in lines[1:]]
    edits += [block_deletion(module, methods[key]) for key in _reached_from_forward(module, project, methods)]
    message = (
        f"{node.name.value} draws sample by sample: it now inherits the shipped {shipped}, which draws for a batch"
    )
    return Proposal(module.span(node.name)[0], message, tuple(edits), frozenset({runtime(clause)}))


def _reached_from_forward(module: Module, project: Project, methods: dict[str, cst.FunctionDef]) -> list[str]:
    """``forward`` and the private methods that only it uses."""
    gone = ["forward"]
    for key in gone:
        called = [
            c.func.attr.value
            for c in matching(methods[key], m.Call(m.Attribute(m.Name("self"), m.Name())))
            if isinstance(c, cst.Call) and isinstance(c.func, cst.Attribute)
        ]
        for other in called:
            private = other.startswith("_") and not project.mentions(other, besides=module.path)
            users = [k for k, f in methods.items() if f"self.{other}" in module.source(f)]
            if other in methods and other not in gone and private and set(users) <= {*gone, other}:
                gone.append(other)
    return gone
