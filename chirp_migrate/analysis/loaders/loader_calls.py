"""Calls that build a loader, and their arguments by name: PyTorch's ``DataLoader`` and the factory's methods."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import is_name, keywords

#: PyTorch's class, by the names that it has.
DATALOADER = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})
_LOADERS = re.compile(
    r"torch\.utils\.data\.(dataloader\.)?(?P<torch>DataLoader)"
    r"|chirpid_patch\.(factory\.)?OptimalDataLoaderFactory\.create_(?P<role>training_|validation_|test_|)loader"
)
#: Parameters of ``torch.utils.data.DataLoader`` that may be given by position.
TORCH_POSITIONAL = (
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
_FACTORY = ("dataset", "batch_size")


@dataclass(frozen=True)
class LoaderCall:
    """A call that builds a loader.

    Attributes:
        role: ``DataLoader``, or the factory's ``training``, ``validation`` or ``test``; empty for ``create_loader``.
        arguments: what it is given, by the name of the parameter.
        open: whether ``*`` or ``**`` hands on arguments that only the run knows.
    """

    call: cst.Call
    role: str
    arguments: dict[str, cst.BaseExpression]
    open: bool

    def given(self, name: str) -> bool:
        """Whether an argument is given and is not the literal ``None``."""
        return name in self.arguments and not is_name(self.arguments[name], "None")


def loader_calls(module: Module, project: Project, *mentioning: str) -> Iterator[LoaderCall]:
    """Calls that build loaders; with ``mentioning``, only those that give one of these arguments by keyword."""
    for call in module.find(cst.Call):
        if mentioning and keywords(call).keys().isdisjoint(mentioning):
            continue
        names = project.resolved_names(module, call.func)
        found = [_LOADERS.fullmatch(name) for name in names]
        if not found or found[0] is None or None in found:
            continue
        role = (found[0]["torch"] or found[0]["role"]).rstrip("_")
        positional = _FACTORY if role in ("training", "validation", "test") else TORCH_POSITIONAL
        plain = [a for a in call.args if not a.star]
        arguments = keywords(call)
        arguments |= dict(zip(positional, (a.value for a in plain if a.keyword is None), strict=False))
        yield LoaderCall(call, role, arguments, len(plain) < len(call.args))


def may_build_loader(outline: Outline, project: Project, call: ast.Call) -> bool:
    """Whether a call may be one of :func:`loader_calls`."""
    return any(map(_LOADERS.fullmatch, project.possible_names(outline, call.func)))


def argument_positions(call: cst.Call) -> dict[str, int]:
    """Where a call of ``DataLoader`` without stars gives each parameter; what it does not take is missing."""
    named = ((one.keyword.value if one.keyword else None, place) for place, one in enumerate(call.args))
    positional = dict(enumerate(TORCH_POSITIONAL))
    found = ((keyword or positional.get(place), place) for keyword, place in named)
    return {name: place for name, place in found if name is not None}
