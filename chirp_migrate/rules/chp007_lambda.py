"""CHP007: lambdas that datasets and loaders hold become functions that can be pickled (R-000-1.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.closures import captured_names, early_binding_problem
from chirp_migrate.imports import Import
from chirp_migrate.lifting import free_name, insert_above
from chirp_migrate.module import Module, matching
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.symbolic import names_in_code

_KEYWORDS = frozenset(
    {"collate_fn", "worker_init_fn", "transform", "target_transform", "transforms", "batch_transform"}
)
_DATASETS = (
    "torch.utils.data.Dataset",
    "torch.utils.data.IterableDataset",
    "torch.utils.data.dataset.Dataset",
)


class PicklableFunction(Rule):
    code: ClassVar[str] = "CHP007"
    name: ClassVar[str] = "lambda-in-loader"
    reason: ClassVar[str] = (
        "A lambda has no name that a worker process could look up, so a dataset or loader that holds one cannot be "
        "pickled. A module-level function can; what the lambda closed over is bound with functools.partial."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("lambda",)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Lift lambdas that reach a loader, a dataset or a transform."""
        for node in matching(module.tree, m.Lambda()):
            assert isinstance(node, cst.Lambda)
            wish = _destination(module, project, node)
            if wish is not None:
                yield _lift(module, project, node, wish)


def _destination(module: Module, project: Project, node: cst.Lambda) -> str | None:
    """Name for the function if the lambda goes where worker processes need it, else ``None``."""
    parent = module.parents[node]
    while isinstance(parent, cst.Element | cst.List | cst.Tuple):
        parent = module.parents[parent]
    if isinstance(parent, cst.Arg):
        call = module.parents[parent]
        if not isinstance(call, cst.Call):
            return None
        keyword = parent.keyword.value if parent.keyword is not None else ""
        if keyword in _KEYWORDS:
            return f"_{keyword}"
        called = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
        if m.matches(called, m.Name("Lambda")):
            return f"_{_assigned_name(module, call) or 'transform'}"
        if any(_is_dataset(project, n) for n in project.resolved_names(module, call.func)):
            return f"_{keyword or 'function'}"
        return None
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        if m.matches(target, m.Attribute(m.Name("self"), m.Name())):
            owner = module.enclosing_class(node)
            if owner is not None and _is_dataset_class(module, project, owner):
                assert isinstance(target, cst.Attribute)
                return f"_{target.attr.value.lstrip('_')}"
        if isinstance(target, cst.Name) and _handed_over(module, node, target.value):
            return f"_{target.value.lstrip('_')}"
    return None


def _assigned_name(module: Module, node: cst.CSTNode) -> str | None:
    parent = module.parents[node]
    if isinstance(parent, cst.Assign) and isinstance(parent.targets[0].target, cst.Name):
        return parent.targets[0].target.value.lstrip("_")
    return None


def _is_dataset_class(module: Module, project: Project, node: cst.ClassDef) -> bool:
    return any(_is_dataset(project, n) for base in node.bases for n in project.resolved_names(module, base.value))


def _is_dataset(project: Project, qualified: str, depth: int = 0) -> bool:
    if qualified in _DATASETS or qualified.startswith("chirpid_patch.WorkerSafe"):
        return True
    found = project.class_definition(qualified) if depth < 5 else None
    if found is None:
        return False
    owner, node = found
    return any(
        _is_dataset(project, name, depth + 1)
        for base in node.bases
        for name in project.resolved_names(owner, base.value)
    )


def _handed_over(module: Module, node: cst.Lambda, name: str) -> bool:
    """Whether a local that holds a lambda is passed on as one of the keywords that loaders and datasets keep."""
    scope = module.enclosing_function(node) or module.tree
    return any(
        isinstance(argument, cst.Arg) and argument.keyword is not None and argument.keyword.value in _KEYWORDS
        for argument in matching(scope, m.Arg(value=m.Name(name)))
    )


def _lift(module: Module, project: Project, node: cst.Lambda, wish: str) -> Proposal:
    offset, span = module.span(node)[0], module.span(node)
    captured = captured_names(module, node)
    problem = early_binding_problem(module, node, captured)
    if problem is None and any(
        isinstance(n, cst.NamedExpr | cst.Yield) for n in matching(node, m.NamedExpr() | m.Yield())
    ):
        problem = "it assigns or yields inside"
    if problem is None and node.params.star_kwarg is not None and captured:
        problem = "it takes any keyword and closes over names"
    if problem is None and _taken_defaults(module, node) and "self" in captured:
        problem = "it closes over `self` and takes defaults from local names"
    if problem is not None:
        return Proposal(offset, f"this lambda cannot go to worker processes, but {problem}; make it a function by hand")
    forwarded = _forwarded(module, node)
    if forwarded is not None:
        return Proposal(offset, f"a lambda that only calls `{forwarded}`: passed directly", (Edit(*span, forwarded),))
    if "self" in captured and m.matches(module.parents[node], m.Assign()):
        return _as_method(module, node, wish, captured)
    name = free_name(module, wish)
    used = [c for c in captured if c in names_in_code(node.body)]
    definition = f"def {name}({_parameters(module, node, used)}):\n    return {_body(module, node)}"
    replacement, imports = _bound(name, [*_taken_defaults(module, node), *((c, c) for c in used)])
    edits = (Edit(*span, replacement), insert_above(module, module.top_level_statement(node), definition))
    return Proposal(offset, f"a lambda cannot go to worker processes: it becomes the function {name}", edits, imports)


def _as_method(module: Module, node: cst.Lambda, wish: str, captured: list[str]) -> Proposal:
    """A lambda over ``self`` kept on ``self`` becomes a method."""
    offset = module.span(node)[0]
    method = module.enclosing_function(node)
    assert method is not None
    name = free_name(module, wish)
    others = [c for c in captured if c != "self"]
    indent = module.indentation(module.span(method)[0])
    parameters = _parameters(module, node, others)
    header = f"{indent}def {name}(self{', ' if parameters else ''}{parameters}):"
    definition = module.newline.join(["", header, f"{indent}    return {_body(module, node)}", ""])
    behind = module.line_end(module.span(method)[1] - 1)
    replacement, imports = _bound(f"self.{name}", [(c, c) for c in others])
    edits = (Edit(*module.span(node), replacement), Edit(behind, behind, definition))
    return Proposal(offset, f"a lambda cannot go to worker processes: it becomes the method {name}", edits, imports)


def _bound(function: str, values: list[tuple[str, str]]) -> tuple[str, frozenset[Import]]:
    """Source of ``function`` with keyword values bound to it, and the import that takes."""
    if not values:
        return function, frozenset()
    bound = ", ".join(f"{keyword}={value}" for keyword, value in values)
    return f"partial({function}, {bound})", frozenset({("functools", "partial")})


def _taken_defaults(module: Module, node: cst.Lambda) -> list[tuple[str, str]]:
    """Parameters whose default reads a local (``lambda x, m=mean: …``): bound where the lambda stood."""
    outer = set(captured_names(module, node))
    return [
        (p.name.value, module.source(p.default))
        for p in node.params.params
        if p.default is not None and names_in_code(p.default) & outer
    ]


def _forwarded(module: Module, node: cst.Lambda) -> str | None:
    """``f`` for ``lambda a, b: f(a, b)``."""
    body = node.body
    simple = all(p.default is None for p in node.params.params) and not isinstance(node.params.star_arg, cst.Param)
    if not isinstance(body, cst.Call) or not simple or node.params.kwonly_params or node.params.star_kwarg:
        return None
    parameters = [p.name.value for p in node.params.params]
    arguments = [a.value.value for a in body.args if isinstance(a.value, cst.Name) and not a.star and a.keyword is None]
    if arguments != parameters or len(body.args) != len(parameters):
        return None
    is_path = isinstance(body.func, cst.Name | cst.Attribute) and not matching(body.func, m.Call() | m.Subscript())
    return module.source(body.func) if is_path and not names_in_code(body.func) & set(parameters) else None


def _parameters(module: Module, node: cst.Lambda, captured: list[str]) -> str:
    taken = {keyword for keyword, _ in _taken_defaults(module, node)}
    own = [
        p.name.value if p.name.value in taken else module.source(p).strip().rstrip(",").rstrip()
        for p in node.params.params
    ]
    if isinstance(node.params.star_arg, cst.Param):
        own.append(module.source(node.params.star_arg).strip().rstrip(",").rstrip())
    elif node.params.kwonly_params or captured:
        own.append("*")
    own += [module.source(p).strip().rstrip(",").rstrip() for p in node.params.kwonly_params]
    own += captured
    if node.params.star_kwarg is not None:
        own.append(module.source(node.params.star_kwarg).strip())
    return ", ".join(own)


def _body(module: Module, node: cst.Lambda) -> str:
    text = module.source(node.body)
    first, *rest = text.splitlines()
    if not rest:
        return text
    # Keep what was aligned with the first line aligned with it.
    start = module.span(node.body)[0]
    start -= 0 if module.text.startswith(first, start) else len(node.body.lpar)
    shift = len("    return ") + (not node.body.lpar) - (start - module.line_start(start))
    moved = [" " * max(0, len(line) - len(line.lstrip(" ")) + shift) + line.lstrip(" ") for line in rest]
    text = module.newline.join([first, *moved])
    return text if node.body.lpar else f"({text})"
