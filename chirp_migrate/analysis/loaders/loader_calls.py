"""Find calls that build loaders (``DataLoader`` or the factory), and read the arguments of the calls by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.known_names import FACTORY_METHOD, TORCH_LOADER, TORCH_POSITIONAL
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.name_resolution import resolve_node
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import is_name, keyword_arguments

_FACTORY = ("dataset", "batch_size")


@dataclass(frozen=True)
class LoaderCall:
    """A call that builds a loader.

    Attributes:
        role: ``training``, ``validation`` or ``test`` for a call such as ``create_training_loader``, "" for
            ``create_loader``, and ``DataLoader`` for a call of this class.
        arguments: the arguments of the call, by the name of the parameter.
        open: whether the call also has ``*`` or ``**`` arguments, whose values are known only at run time.
    """

    call: cst.Call
    role: str
    arguments: dict[str, cst.BaseExpression]
    open: bool

    def given(self, name: str) -> bool:
        """Return whether an argument is present and is not the literal ``None``."""
        return name in self.arguments and not is_name(self.arguments[name], "None")


def loader_calls(module: Module, project: Project, *keywords: str) -> Iterator[LoaderCall]:
    """Yield the calls that build loaders.

    With ``keywords``, only yield calls with one of these keyword arguments.
    """
    for call in module.find(cst.Call):
        if keywords and keyword_arguments(call).keys().isdisjoint(keywords):
            continue
        roles = {_role_of_callee(name) for name in resolve_node(project, module, call.func)}
        role = roles.pop() if len(roles) == 1 else None
        if role is None:
            continue
        positional = _FACTORY if role in ("training", "validation", "test") else TORCH_POSITIONAL
        plain = [a for a in call.args if not a.star]
        arguments = keyword_arguments(call)
        arguments |= dict(zip(positional, (a.value for a in plain if a.keyword is None), strict=False))
        yield LoaderCall(call, role, arguments, len(plain) < len(call.args))


def may_pass_loader_argument_by_position(module: Module, parameter: str) -> bool:
    """Return whether any call in a module may pass a parameter of ``DataLoader`` by position."""
    place = TORCH_POSITIONAL.index(parameter)
    return any(len(call.args) > place and call.args[place].keyword is None for call in module.find(cst.Call))


def _role_of_callee(qualified: str) -> str | None:
    """Return the role of the loader that a call of ``qualified`` builds (see :class:`LoaderCall`); else None."""
    if TORCH_LOADER.fullmatch(qualified):
        return "DataLoader"
    method = FACTORY_METHOD.fullmatch(qualified)
    return None if method is None else method["role"].rstrip("_")


def argument_positions(call: cst.Call) -> dict[str, int]:
    """Return the parameters that a ``DataLoader`` call passes, each with the position of its argument in the call.

    The call must have no ``*`` or ``**`` arguments.
    """
    named = ((one.keyword.value if one.keyword else None, place) for place, one in enumerate(call.args))
    positional = dict(enumerate(TORCH_POSITIONAL))
    found = ((keyword or positional.get(place), place) for keyword, place in named)
    return {name: place for name, place in found if name is not None}
