"""CHP015: transforms are made once, not for every sample (R-000-4.2)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

import libcst as cst

from chirp_migrate.analysis.dataflow.uses_elsewhere import is_asked_for
from chirp_migrate.analysis.datasets.transforms_per_sample import BASE, ENTRY, NotOnce, SampleTransforms
from chirp_migrate.edits.move_definition import free_name
from chirp_migrate.rules.api import (
    CALL,
    GAP,
    Edit,
    Module,
    Outline,
    Project,
    Proposal,
    Rule,
    Safety,
    bases_may_be,
    functions_of,
)

#: A method that runs for each sample.
_METHOD = re.compile(rf"\bdef{GAP}(__getitems?__|__call__|\w*collate\w*){CALL}")


class AugmenterPerSample(Rule):
    """Requires, of a call that makes a transform:

    - `known-transform`: it makes one of the transforms of torchvision and torchaudio that were looked at, or a
      `torch.nn.Module` of the project that stores its arguments and constants when it is made and only reads them.
      No file of the project holds `set_default_dtype`, `set_default_device` or `set_default_tensor_type`.
    - `plain-bases`: its class inherits from PyTorch's `Dataset`, a torchvision dataset or nothing.
    - `runs-per-sample`: it stands in `__getitem__`, `__getitems__`, `__call__`, a method with `collate` in its name, or
      a method that one of these calls on ``self``.
    - `known-before-sample`: no variable of the method is in it.
    - `unchanging-arguments`: its arguments are literals, known transforms, constants of libraries, names to which the
      module gives one constant value (it has no ``globals(``, and no other code gives a name of the module another
      value, nor an attribute called so), attributes of ``self``, and what operators make of those; nothing is spread.
    - `attribute-set-once`: such an attribute gets its value at the top level of `__init__`; nothing else in the module,
      and in other files nothing but assignments to their ``self``, sets it or calls a method of what it holds; and no
      file of the project holds the words `setattr(`, `vars(`, `__dict__`, `__new__`, `__setattr__`, `__setstate__` or
      `copyreg`.
    - `only-called`: it is called where it is made, or through a variable that is only called.
    - `plain-init`: the class has an `__init__` of several lines, without decorator and ``return``, which neither hands
      the object on nor uses the methods that run for each sample.
    - `plain-class`: class and method have no decorators and call the object ``self``; the class has no `__slots__` and
      no say in how it is copied; no file of the project holds the word `__new__`.
    - `no-subclass`: no class of the project names it among its bases.
    - `always-made`: where it is made from attributes, it is made for every sample, under no condition.
    - `same-names`: `__init__` does not bind a name that is in it.
    """

    code = "CHP015"
    name = "augmenter-per-sample"
    reason = (
        "A transform that is made inside `__getitem__` is made again for every sample: its arguments are checked, its "
        "windows and filter banks computed, its module set up. Made once in `__init__` it gives the same results, as "
        "it draws its random numbers when it is called and keeps nothing between calls."
    )
    safety = Safety.SAFE
    trigger = ("Dataset", "__getitem__", "ugment", "torchvision", "torchaudio")
    beside = (_METHOD,)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Only where a class that inherits from nothing else has such a method, and makes something in one."""
        return any(
            any(map(ENTRY.fullmatch, functions_of(definition)))
            and bases_may_be(outline, project, definition, BASE)
            and any(
                isinstance(call, ast.Call) and project.possible_class(outline, call.func)
                for name, method in functions_of(definition).items()
                for call in (outline.inside(method) if name != "__init__" else ())
            )
            for definition in outline.find(ast.ClassDef)
        )

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Make transforms with unchanging arguments in ``__init__``."""
        for definition in module.find(cst.ClassDef):
            made = SampleTransforms(module, project, definition)
            sites: dict[str, list[cst.Call]] = {}
            for method, call in made.calls():
                start, end = module.span(call)
                try:
                    made.check(method, call)
                except NotOnce as problem:
                    shown = module.source(call.func).strip()
                    message = f"`{shown}` is rebuilt for every sample; build it once in `__init__`. Left alone:"
                    yield Proposal(start, f"{message} {problem}")
                else:
                    sites.setdefault(module.text[start:end], []).append(call)
            taken: set[str] = set()
            for calls in sites.values():
                yield _move(module, project, made.init, calls, taken)


def _move(
    module: Module, project: Project, init: cst.FunctionDef, calls: Sequence[cst.Call], taken: set[str]
) -> Proposal:
    start, end = module.span(calls[0])
    shown = module.source(calls[0].func).strip()
    wish = "_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", shown.rpartition(".")[2]).lower()
    name = ""
    while not name or is_asked_for(project, name):
        name = free_name(module, [wish], taken)
        taken.add(name)
    old, indent = module.indentation(start), module.indentation(module.span(init.body.body[0])[0])
    lines = module.text[start:end].splitlines(keepends=True)
    text = lines[0] + "".join(indent + line[len(old) :] if line.startswith(old) else line for line in lines[1:])
    after = module.line_end(module.span(init.body.body[-1])[1] - 1)
    lead = "" if module.text[:after].endswith(("\n", "\r")) else module.newline
    made = Edit(after, after, f"{lead}{indent}self.{name} = {text}{module.newline}")
    message = f"`{shown}` was rebuilt for every sample: now built once, as `self.{name}`"
    return Proposal(start, message, (made, *(Edit(*module.span(call), f"self.{name}") for call in calls)))
