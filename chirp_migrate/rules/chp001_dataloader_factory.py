"""CHP001: construct loaders through the factory (R-000-2.1, R-000-2.2, R-000-4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.arguments import insert_argument, one_per_line, realign, remove_arguments
from chirp_migrate.config_scope import config_expression
from chirp_migrate.imports import runtime
from chirp_migrate.knobs import is_taken_over, only_seeds
from chirp_migrate.module import Module
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule

DATALOADER = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})

#: Parameters of ``torch.utils.data.DataLoader`` that may be given by position.
POSITIONAL = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)
_FACTORY = "OptimalDataLoaderFactory"


class DataLoaderFactory(Rule):
    code: ClassVar[str] = "CHP001"
    name: ClassVar[str] = "dataloader-factory"
    reason: ClassVar[str] = (
        "A loader built by hand fixes its workers, pinning and prefetching for one machine and reads sample by sample. "
        "The factory keeps everything the call says about data (batch size, order, sampler, collation, generator, "
        "persistent_workers) and chooses the rest for the dataset and the machine at hand."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("DataLoader",)

    def concerns(self, text: str, project: Project) -> bool:
        """Also modules that know the class by a name another module gave it."""
        return super().concerns(text, project) or any(alias in text for alias in project.aliases("DataLoader"))

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite every call that resolves to PyTorch's ``DataLoader``; report other uses of the class."""
        spellings = {"DataLoader", *project.aliases("DataLoader")}
        for node in module.find(cst.Name, cst.Attribute):
            assert isinstance(node, cst.Name | cst.Attribute)
            if (node.value if isinstance(node, cst.Name) else node.attr.value) not in spellings:
                continue
            if not self._is_dataloader(module, project, node):
                continue
            parent = module.parents[node]
            if isinstance(parent, cst.Call) and parent.func is node:
                yield _rewrite(module, project, parent)
            elif not _harmless_use(module, node):
                yield Proposal(
                    module.span(node)[0],
                    "DataLoader is used as a value here, so the call that builds the loader cannot be seen; "
                    "build it with OptimalDataLoaderFactory by hand where it is called",
                )

    @staticmethod
    def _is_dataloader(module: Module, project: Project, node: cst.Name | cst.Attribute) -> bool:
        parent = module.parents[node]
        if isinstance(parent, cst.Attribute) and parent.attr is node:
            return False
        names = project.resolved_names(module, node)
        return bool(names) and names <= DATALOADER


def _harmless_use(module: Module, node: cst.CSTNode) -> bool:
    """Whether the class is only named: in an import, an annotation, a base class list or an ``isinstance`` test."""
    for ancestor in module.ancestors(node):
        if isinstance(ancestor, cst.ImportFrom | cst.Import | cst.Annotation):
            return True
        if isinstance(ancestor, cst.Call):
            return m.matches(ancestor.func, m.Name("isinstance") | m.Name("issubclass"))
        if isinstance(ancestor, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            return False
    return False


def _rewrite(module: Module, project: Project, call: cst.Call) -> Proposal:
    offset = module.span(call)[0]
    if any(argument.star for argument in call.args):
        return _pass_arguments_on(module, call, offset)
    arguments: dict[str, int] = {}
    for position, argument in enumerate(call.args):
        if argument.keyword is not None:
            arguments[argument.keyword.value] = position
        elif position < len(POSITIONAL):
            arguments[POSITIONAL[position]] = position
    if "dataset" not in arguments:
        return Proposal(offset, "this DataLoader call names no dataset, so it is left alone")

    removed: set[int] = set()
    edits: list[Edit] = []
    said: list[str] = []
    for knob in ("num_workers", "pin_memory", "prefetch_factor", "worker_init_fn"):
        if knob not in arguments:
            continue
        argument = call.args[arguments[knob]]
        if knob == "num_workers":
            if m.matches(argument.value, m.Integer("0")):
                removed.add(arguments[knob])
            else:
                edits += _rename(module, argument, "max_workers")
                said.append("its worker count becomes an upper bound")
        elif knob == "worker_init_fn":
            if only_seeds(module, argument.value):
                removed.add(arguments[knob])
                said.append("workers are seeded by the factory")
        elif is_taken_over(module, argument.value):
            removed.add(arguments[knob])
    kept = set(range(len(call.args))) - removed

    role, extra = _role(call, arguments)
    factory = f"{_FACTORY}.create_{role}_loader"
    for name, position in arguments.items():
        if position in kept and position >= 2 and call.args[position].keyword is None and name != "num_workers":
            edits += _rename(module, call.args[position], name)
    config = config_expression(module, call)
    if config is not None:
        extra.append(f"optimize={config}.get('optimize_dataloaders', True)")
        extra.append(f"benchmark={config}.get('benchmark_performance', False)")
    callee = module.span(call.func)
    in_place = [
        Edit(*callee, factory),
        *edits,
        *realign(module, call, len(factory) - (callee[1] - callee[0]), removed),
        *remove_arguments(module, call, removed),
        *([insert_argument(module, call, _merged(module, call, extra, kept), kept)] if extra else []),
    ]
    edits = one_per_line(module, call, factory, edits, kept, extra, in_place) or in_place
    note = f" ({'; '.join(said)})" if said else ""
    return Proposal(
        offset,
        f"loader built by hand: the factory builds the {role} loader{note}",
        tuple(edits),
        frozenset({runtime(_FACTORY)}),
    )


def _merged(module: Module, call: cst.Call, extra: list[str], kept: set[int]) -> str:
    """The added arguments as one insertion, a line each where the arguments have lines of their own."""
    start = module.span(call.args[max(kept)])[0]
    own_line = not module.text[module.line_start(start) : start].strip()
    separator = f",{module.newline}{module.indentation(start)}" if own_line else ", "
    return separator.join(extra)


def _pass_arguments_on(module: Module, call: cst.Call, offset: int) -> Proposal:
    """``DataLoader(ds, **options)``: what the options hold is known only when it runs, so the factory decides then."""
    factory = f"{_FACTORY}.create_loader"
    callee = module.span(call.func)
    edits = [Edit(*callee, factory), *realign(module, call, len(factory) - (callee[1] - callee[0]), ())]
    return Proposal(
        offset,
        "loader built from arguments that are known only at run time: the factory reads them there",
        tuple(edits),
        frozenset({runtime(_FACTORY)}),
    )


def _role(call: cst.Call, arguments: dict[str, int]) -> tuple[str, list[str]]:
    """Training or validation, by what the call says about order; and arguments that keep its meaning."""
    if "sampler" in arguments or "batch_sampler" in arguments:
        return "training", []
    shuffle = call.args[arguments["shuffle"]].value if "shuffle" in arguments else None
    if shuffle is not None and not m.matches(shuffle, m.Name("False") | m.Name("None")):
        return "training", []
    drop_last = call.args[arguments["drop_last"]].value if "drop_last" in arguments else None
    if drop_last is not None and not m.matches(drop_last, m.Name("False")):
        return "training", [] if shuffle is not None else ["shuffle=False"]
    return "validation", []


def _rename(module: Module, argument: cst.Arg, keyword: str) -> list[Edit]:
    if argument.keyword is not None:
        return [Edit(*module.span(argument.keyword), keyword)]
    start = module.span(argument)[0]
    return [Edit(start, start, f"{keyword}=")]
