"""Attributes and methods of a class that loads by hand, by the machinery that they are a part of."""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from chirp_migrate.held_state import assigned_value
from chirp_migrate.module import Module, walk

__all__ = ["KEPT", "MEMORY", "members"]

KEPT, MEMORY = "kept", "memory"

#: What a loader that replaces the class has under the same name.
_SAME = re.compile(
    r"__(iter|len|getitem)__|loader|refresh|to|shutdown|collate_fn|dataset|batch_size|sampler|weighted_sampler|is_train"
    r"|rng|device|_?(num_workers|pin_memory|persistent_workers|prefetch_factor)"
)
#: Names that people give to parts of such machinery; what they hold decides first.
_WORDS = {
    "workers": re.compile(r"executor|pool\b|worker|future|process"),
    "threads": re.compile(r"thread|queue|prefetch|buffer|producer|fetcher"),
    "streams": re.compile(r"stream|preload|next_(input|target|batch|data)"),
    MEMORY: re.compile(r"memory"),
}
_QUEUES = re.compile(r"(\w+\.)*(\w*Queue|deque)")


def members(module: Module, node: cst.ClassDef, kinds: Mapping[int, str]) -> dict[str, list[str]]:
    """The members of a class by kind: that of a machinery, :data:`MEMORY`, or :data:`KEPT`, in order of the text.

    ``kinds`` says what is made by which call, by the id of its node. What belongs to none is left out.
    """
    found: dict[str, str] = {}
    for statement in node.body.body:
        if not isinstance(statement, cst.FunctionDef):
            continue
        for part in walk(statement):
            if isinstance(part, cst.Attribute) and isinstance(part.value, cst.Name) and part.value.value == "self":
                value = assigned_value(module, part)
                if value is not None:
                    _note(found, part.attr.value, _kind(part.attr.value, value, kinds, held=True))
        name = statement.name.value
        _note(found, name, _kind(name, statement.body, kinds, held=False))
    groups: dict[str, list[str]] = {}
    for name, kind in found.items():
        groups.setdefault(kind, []).append(name)
    return groups


def _note(found: dict[str, str], name: str, kind: str | None) -> None:
    if kind is not None and found.get(name, KEPT) == KEPT:
        found[name] = kind


def _kind(name: str, code: cst.CSTNode, kinds: Mapping[int, str], *, held: bool) -> str | None:
    """What a member is a part of, from what it holds or makes, else from its name."""
    if _SAME.fullmatch(name):
        return KEPT
    if held or name != "__init__":
        for part in walk(code):
            if isinstance(part, cst.Call):
                if id(part) in kinds:
                    return kinds[id(part)]
                if held and isinstance(part.func, cst.Name | cst.Attribute) and _is_queue(part.func):
                    return "threads"
    return next((kind for kind, words in _WORDS.items() if words.search(name)), None)


def _is_queue(node: cst.Name | cst.Attribute) -> bool:
    return _QUEUES.fullmatch(node.value if isinstance(node, cst.Name) else node.attr.value) is not None
