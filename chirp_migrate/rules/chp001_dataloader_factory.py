"""CHP001: construct loaders through the factory (R-000-2.1, R-000-2.2, R-000-4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.closures import is_read
from chirp_migrate.analysis.loaders.config_scope import config_expression
from chirp_migrate.analysis.loaders.loader_calls import DATALOADER, argument_positions
from chirp_migrate.analysis.loaders.loader_role import loader_role
from chirp_migrate.analysis.loaders.loader_uses import (
    Built,
    CalledLater,
    HandedOn,
    Named,
    Subclassed,
    loader_mentions,
    may_build,
    use_of,
)
from chirp_migrate.analysis.loaders.machine_defaults import follows_machine
from chirp_migrate.edits.imports import local_import_edits
from chirp_migrate.rules.api import CallEdit, Edit, Module, Outline, Project, Proposal, Rule, Safety, runtime, walk

_FACTORY = "OptimalDataLoaderFactory"


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

    code = "CHP001"
    name = "dataloader-factory"
    reason = (
        "A loader built by hand fixes its workers, pinning and prefetching for one machine and reads sample by sample. "
        "The factory keeps everything the call says about data (batch size, order, sampler, collation, generator, "
        "persistent_workers) and chooses the rest for the dataset and the machine at hand."
    )
    safety = Safety.SAFE
    trigger = ("DataLoader",)
    counts_sites = True

    def words(self, project: Project) -> Iterable[str]:
        """The class and the factory; also by a name that another module gave the class."""
        return ("DataLoader", _FACTORY, *project.aliases("DataLoader"))

    def concerns(self, text: str, project: Project) -> bool:
        """Modules with a word for the class or the factory."""
        return any(word in text for word in self.words(project))

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Not where the class is only imported and annotated with."""
        return may_build(outline, frozenset(self.words(project)))

    def may_have_more(self, outline: Outline, project: Project) -> bool:
        """Not for what the factory builds by now."""
        return may_build(outline, frozenset(self.words(project)) - {_FACTORY})

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite every call that resolves to PyTorch's ``DataLoader``; report other uses of the class."""
        spellings = {"DataLoader", *project.aliases("DataLoader")}
        for node in loader_mentions(module, spellings):
            if isinstance(node, cst.Attribute) and node.attr.value not in spellings:
                if project.resolved_names(module, node.value) == {f"chirpid_patch.{_FACTORY}"}:
                    yield Proposal(module.span(node)[0], "built by the factory", fine=True)
            elif is_read(module, node) and (names := project.resolved_names(module, node)) & DATALOADER:
                proposal = _proposal(module, project, node, sorted(names - DATALOADER))
                if proposal is not None:
                    yield _in_its_module(module, project, node, proposal) if proposal.edits else proposal


def _proposal(module: Module, project: Project, node: cst.Name | cst.Attribute, others: list[str]) -> Proposal | None:
    """The proposal for one mention of the class, if it is more than a mention."""
    use, offset = use_of(module, project, node), module.span(node)[0]
    if isinstance(use, Named):
        return None
    if others:
        return Proposal(
            offset,
            f"`DataLoader` may be PyTorch's or {' or '.join(others)} here: left alone; import the two under different "
            "names to have PyTorch's migrated",
            why="ambiguous-name",
        )
    match use:
        case Subclassed(by):
            return Proposal(
                offset,
                f"{by} subclasses `DataLoader`: left alone; unless it overrides `__iter__`, inherit from "
                "`chirpid_patch.BatchedDataLoader`, which takes the same arguments",
                why="subclass",
            )
        case HandedOn(where):
            return Proposal(
                offset,
                f"`DataLoader` is {where}, so the call that builds the loader is not seen; call "
                f"`{_FACTORY}.create_loader` there instead",
                why="used-as-value",
            )
        case CalledLater():
            message = "`DataLoader` as a callable: `create_loader` takes the same arguments"
            return Proposal(offset, message, (Edit(*module.span(node), f"{_FACTORY}.create_loader"),))
        case Built(call):
            return _rewrite(module, project, call)


def _in_its_module(module: Module, project: Project, node: cst.Name | cst.Attribute, proposal: Proposal) -> Proposal:
    """The factory imported where the class was, if that is in a function of a module that loads without torch."""
    root = next(one for one in walk(node) if isinstance(one, cst.Name))
    if project.is_replaced(module, root.value):
        return Proposal(
            proposal.offset,
            f"a test patches `{root.value}` in this module, and would miss; patch "
            "`OptimalDataLoaderFactory` there and migrate this by hand",
            why="replaced-by-test",
        )
    beside = local_import_edits(module, root, runtime(_FACTORY), project.import_style)
    if beside is None:
        return replace(proposal, imports=frozenset({runtime(_FACTORY)}))
    return replace(proposal, edits=(*proposal.edits, *beside))


def _rewrite(module: Module, project: Project, call: cst.Call) -> Proposal:
    offset, change = module.span(call)[0], CallEdit(module, call, project.code_style)
    star = max((argument.star for argument in call.args), key=len, default="")
    if star:
        change.rename(f"{_FACTORY}.create_loader")
        what = "`**kwargs` call" if star == "**" else "`*args` call"
        message = f"{what}: uses `create_loader`, which takes the arguments of `DataLoader`"
        return Proposal(offset, message, change.edits())
    places = argument_positions(call)
    if "dataset" not in places:
        return Proposal(offset, "`DataLoader` call without a dataset: left alone", why="no-dataset")
    if len(places) < len(call.args):
        message = "`DataLoader` call with more arguments than it takes, or one twice: left alone"
        return Proposal(offset, message, why="too-many-arguments")
    values = {name: call.args[position].value for name, position in places.items()}
    role = loader_role(module, call, values)
    message = "`DataLoader` call: uses `create_loader`, with the same arguments"
    if role is None:
        change.rename(f"{_FACTORY}.create_loader")
    else:
        change.rename(f"{_FACTORY}.create_{role.name}_loader")
        message = f"`DataLoader` call: uses `create_{role.name}_loader`"
        if "num_workers" in places and m.matches(values["num_workers"], m.Integer("0")):
            change.drop(places["num_workers"])
        elif "num_workers" in places:
            change.name(places["num_workers"], "max_workers")
            message += "; `num_workers` becomes `max_workers`, an upper bound"
        unpinned = "pin_memory" in places and follows_machine(module, values["pin_memory"])
        for name, position in places.items():
            if name == "pin_memory" and unpinned:
                change.drop(position)
            elif position >= 2 and call.args[position].keyword is None and name != "num_workers":
                change.name(position, name)
        if role.in_order:
            change.add("shuffle=False")
    config = config_expression(module, project, call)
    if config is not None:
        change.add(f"optimize={config}.get('optimize_dataloaders', True)")
        change.add(f"benchmark={config}.get('benchmark_performance', False)")
    return Proposal(offset, message, change.edits())
