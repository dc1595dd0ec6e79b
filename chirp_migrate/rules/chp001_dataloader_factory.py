"""CHP001: construct loaders through the factory (R-000-2.1, R-000-2.2, R-000-4.2)."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.closures import is_read
from chirp_migrate.analysis.loaders.config_scope import config_expression
from chirp_migrate.analysis.loaders.loader_calls import TORCH_POSITIONAL
from chirp_migrate.analysis.loaders.loader_role import loader_role
from chirp_migrate.analysis.loaders.loader_uses import UseKind, use_of
from chirp_migrate.analysis.loaders.machine_defaults import follows_machine
from chirp_migrate.edits.call_arguments import insert_arguments, one_per_line, realign, remove_arguments
from chirp_migrate.edits.imports import local_import_edits, runtime
from chirp_migrate.plans.plan import Edit, Safety
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.syntax.module import Module, UnparsableModule, syntax_tree
from chirp_migrate.syntax.project import Project

DATALOADER = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})

_FACTORY = "OptimalDataLoaderFactory"
_CALL = re.compile(r"\bDataLoader\s*\(")
_METHOD = re.compile(r"create_(\w+_)?loader")


class DataLoaderFactory(Rule):
    """Requires, of a mention of the class:

    - `surely-pytorchs`: the name stands for PyTorch's `DataLoader`, also through imports of the project, and no branch
      or `import *` can give it another meaning.
    - `only-called`: it is called here, or by `functools.partial`, or through a variable, parameter default or
      attribute that is only called, in this file.
    - `no-subclass`: it is not inherited from.
    - `dataset-given`: a call names its dataset, or takes its arguments from `*` or `**`.
    - `known-parameters`: a call gives no parameter twice, and no more positional arguments than there are.
    - `not-replaced`: no other file of the project holds the text of a `patch` or `setattr` that puts something else in
      the place of the name in this module.

    A loader that is clearly for training or for validation is built by the factory's method for that: names say which
    (of the loader, its dataset, or the function that returns it), else a literal `shuffle`. There `num_workers` becomes
    `max_workers` (0 is left out), and `pin_memory` is left out where it is True or asks the machine. Any other is built
    by `create_loader`, which takes the arguments of `DataLoader` as they are. All other arguments stay.

    A configuration is read only where the same function, or `__init__`, has surely called its `get` with one key (and a
    number) by then, and no class of the project defines a `get`.
    """

    code: ClassVar[str] = "CHP001"
    name: ClassVar[str] = "dataloader-factory"
    reason: ClassVar[str] = (
        "A loader built by hand fixes its workers, pinning and prefetching for one machine and reads sample by sample. "
        "The factory keeps everything the call says about data (batch size, order, sampler, collation, generator, "
        "persistent_workers) and chooses the rest for the dataset and the machine at hand."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("DataLoader",)
    counts_sites: ClassVar[bool] = True

    def words(self, project: Project) -> Iterable[str]:
        """The class and the factory; also by a name that another module gave the class."""
        return ("DataLoader", _FACTORY, *project.aliases("DataLoader"))

    def concerns(self, text: str, project: Project) -> bool:
        """Modules that build a loader."""
        return _concerns(text, frozenset(self.words(project)))

    def may_have_more(self, text: str, project: Project) -> bool:
        """Not for what the factory builds by now."""
        return _concerns(text, frozenset(self.words(project)) - {_FACTORY})

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite every call that resolves to PyTorch's ``DataLoader``; report other uses of the class."""
        spellings = {"DataLoader", *project.aliases("DataLoader")}
        for node in sorted(_mentions(module, spellings), key=lambda one: module.span(one)[0]):
            if isinstance(node, cst.Attribute) and node.attr.value not in spellings:
                if project.resolved_names(module, node.value) == {f"chirpid_patch.{_FACTORY}"}:
                    yield Proposal(module.span(node)[0], "built by the factory", fine=True)
            elif is_read(module, node):
                names = project.resolved_names(module, node)
                if not names & DATALOADER:
                    continue
                for proposal in _check_use(module, project, node, sorted(names - DATALOADER)):
                    root = _root(node)
                    if proposal.edits and root is not None and project.is_replaced(module, root.value):
                        yield Proposal(
                            proposal.offset,
                            f"a test patches `{root.value}` in this module, and would miss; patch "
                            "`OptimalDataLoaderFactory` there and migrate this by hand",
                            why="replaced-by-test",
                        )
                        continue
                    yield proposal


def _mentions(module: Module, spellings: Collection[str]) -> Iterator[cst.Name | cst.Attribute]:
    """Names that may be the class, and attributes that may be the factory's methods."""
    for name in module.find(cst.Name):
        if name.value in spellings:
            yield name
    for attribute in module.find(cst.Attribute):
        if attribute.attr.value in spellings or _METHOD.fullmatch(attribute.attr.value):
            yield attribute


def _concerns(text: str, words: frozenset[str]) -> bool:
    return any(word in text for word in words) and (_CALL.search(text) is not None or _may_build(text, words))


@lru_cache(maxsize=64)
def _may_build(text: str, spellings: frozenset[str]) -> bool:
    """Whether the class, or the factory, is more than imported and annotated with; decides who is parsed by LibCST."""
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return True  # whoever reads it next says why not
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
        if name in spellings or (isinstance(node, ast.alias) and node.asname and node.name in spellings):
            return True
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                pending += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]
    return False


def _check_use(
    module: Module, project: Project, node: cst.Name | cst.Attribute, others: list[str]
) -> Iterable[Proposal]:
    """The proposal for one mention of the class, if it is more than a mention."""
    use, offset = use_of(module, project, node), module.span(node)[0]
    if use.kind is UseKind.NAMED:
        return
    if others:
        yield Proposal(
            offset,
            f"`DataLoader` may be PyTorch's or {' or '.join(others)} here: left alone; import the two under different "
            "names to have PyTorch's migrated",
            why="ambiguous-name",
        )
        return
    if use.kind is UseKind.SUBCLASS:
        yield Proposal(
            offset,
            f"{use.where} subclasses `DataLoader`: left alone; unless it overrides `__iter__`, inherit from "
            "`chirpid_patch.BatchedDataLoader`, which takes the same arguments",
            why="subclass",
        )
        return
    if use.kind is UseKind.VALUE:
        yield Proposal(
            offset,
            f"`DataLoader` is {use.where}, so the call that builds the loader is not seen; call "
            f"`{_FACTORY}.create_loader` there instead",
            why="used-as-value",
        )
        return
    if use.call is not None:
        yield _with_local_import(module, project, node, _rewrite(module, project, use.call))
    else:
        message = "`DataLoader` as a callable: `create_loader` takes the same arguments"
        edits = (Edit(*module.span(node), f"{_FACTORY}.create_loader"),)
        imports = frozenset({runtime(_FACTORY)})
        yield _with_local_import(module, project, node, Proposal(offset, message, edits, imports))


def _root(node: cst.Name | cst.Attribute) -> cst.Name | None:
    """The first name of a dotted one."""
    root: cst.BaseExpression = node
    while isinstance(root, cst.Attribute):
        root = root.value
    return root if isinstance(root, cst.Name) else None


def _with_local_import(
    module: Module, project: Project, node: cst.Name | cst.Attribute, proposal: Proposal
) -> Proposal:
    """The factory imported where the class was, if that is in a function of a module that loads without torch."""
    root = _root(node)
    if not proposal.edits or root is None:
        return proposal
    beside = local_import_edits(module, root, runtime(_FACTORY), project.import_style)
    if beside is None:
        return proposal
    return replace(proposal, edits=(*proposal.edits, *beside), imports=frozenset())


def _rewrite(module: Module, project: Project, call: cst.Call) -> Proposal:
    offset = module.span(call)[0]
    if any(argument.star for argument in call.args):
        stars = "".join(sorted({argument.star for argument in call.args if argument.star}, key=len, reverse=True)[:1])
        what = "`**kwargs` call" if stars == "**" else "`*args` call"
        message = f"{what}: uses `create_loader`, which takes the arguments of `DataLoader`"
        return _renamed(module, project, call, [], message)
    arguments: dict[str, int] = {}
    for position, argument in enumerate(call.args):
        if argument.keyword is not None:
            arguments[argument.keyword.value] = position
        elif position < len(TORCH_POSITIONAL):
            arguments[TORCH_POSITIONAL[position]] = position
    if "dataset" not in arguments:
        return Proposal(offset, "`DataLoader` call without a dataset: left alone", why="no-dataset")
    if len(arguments) < len(call.args):
        message = "`DataLoader` call with more arguments than it takes, or one twice: left alone"
        return Proposal(offset, message, why="too-many-arguments")
    values = {name: call.args[position].value for name, position in arguments.items()}
    role = loader_role(module, call, values)
    config = config_expression(module, project, call)
    extra = [] if config is None else [
        f"optimize={config}.get('optimize_dataloaders', True)",
        f"benchmark={config}.get('benchmark_performance', False)",
    ]  # fmt: skip
    if role is None:
        message = "`DataLoader` call: uses `create_loader`, with the same arguments"
        return _renamed(module, project, call, extra, message)

    removed: set[int] = set()
    edits: list[Edit] = []
    bounded = ""
    if "num_workers" in arguments:
        argument = call.args[arguments["num_workers"]]
        if m.matches(argument.value, m.Integer("0")):
            removed.add(arguments["num_workers"])
        else:
            edits += _rename(module, argument, "max_workers")
            bounded = "; `num_workers` becomes `max_workers`, an upper bound"
    if "pin_memory" in arguments and follows_machine(module, values["pin_memory"]):
        removed.add(arguments["pin_memory"])
    kept = set(range(len(call.args))) - removed
    factory = f"{_FACTORY}.create_{role.name}_loader"
    for name, position in arguments.items():
        if position in kept and position >= 2 and call.args[position].keyword is None and name != "num_workers":
            edits += _rename(module, call.args[position], name)
    extra = ["shuffle=False", *extra] if role.in_order else extra
    callee = module.span(call.func)
    shift = len(factory) - (callee[1] - callee[0])
    in_place = [
        Edit(*callee, factory),
        *edits,
        *realign(module, call, shift, removed),
        *remove_arguments(module, call, removed),
        *([insert_arguments(module, call, extra, kept, shift)] if extra else []),
    ]
    edits = one_per_line(module, call, factory, edits, kept, extra, in_place, project.code_style) or in_place
    message = f"`DataLoader` call: uses `create_{role.name}_loader`{bounded}"
    return Proposal(offset, message, tuple(edits), frozenset({runtime(_FACTORY)}))


def _renamed(module: Module, project: Project, call: cst.Call, extra: list[str], message: str) -> Proposal:
    """The factory's method that takes what ``DataLoader`` takes: all arguments stay."""
    factory = f"{_FACTORY}.create_loader"
    callee = module.span(call.func)
    kept = set(range(len(call.args)))
    shift = len(factory) - (callee[1] - callee[0])
    in_place = [
        Edit(*callee, factory),
        *realign(module, call, shift, ()),
        *([insert_arguments(module, call, extra, kept, shift)] if extra else []),
    ]
    edits = one_per_line(module, call, factory, [], kept, extra, in_place, project.code_style) or in_place
    return Proposal(module.span(call)[0], message, tuple(edits), frozenset({runtime(_FACTORY)}))


def _rename(module: Module, argument: cst.Arg, keyword: str) -> list[Edit]:
    if argument.keyword is not None:
        return [Edit(*module.span(argument.keyword), keyword)]
    start = module.span(argument)[0]
    return [Edit(start, start, f"{keyword}=")]
