"""The backend as a whole: which module defines a name, and who imports it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from chirp_migrate.module import Module, UnparsableModule

#: How many re-exports are followed before giving up (a cycle of imports ends here too).
_REEXPORT_LIMIT = 8


class Project:
    """The texts of a backend's modules, parsed when first asked for.

    Args:
        texts: decoded source by posix path relative to the root.
        notebooks: raw text of the notebooks by path; only searched for imports.
    """

    def __init__(self, texts: Mapping[str, str], notebooks: Mapping[str, str] | None = None) -> None:
        self._texts = dict(texts)
        self._notebooks = dict(notebooks or {})
        self._modules: dict[str, Module | None] = {}
        self._paths = {_dotted(path): path for path in self._texts}

    def text(self, path: str) -> str:
        """Current text of the file at ``path``."""
        return self._texts[path]

    def update(self, path: str, text: str) -> None:
        """Replace the text of one file (a rewritten module is what the others see)."""
        self._texts[path] = text
        self._modules.pop(path, None)

    def module(self, path: str) -> Module:
        """The parsed module at ``path``.

        Raises:
            UnparsableModule: when the text is not Python.
        """
        if path not in self._modules:
            self._modules[path] = None
            self._modules[path] = Module(path, self._texts[path])
        module = self._modules[path]
        if module is None:
            raise UnparsableModule("could not be read before")
        return module

    def resolve(self, qualified: str) -> str:
        """Follow re-exports through modules of the backend to the name's origin.

        ``utils.common.DataLoader`` becomes ``torch.utils.data.DataLoader`` when ``utils/common.py`` imports it from
        there; a name defined in the backend, or outside, comes back as it is.
        """
        for _ in range(_REEXPORT_LIMIT):
            module_name, _, name = qualified.rpartition(".")
            path = self._paths.get(module_name)
            if path is None:
                return qualified
            target = _import_target(self._texts[path], name)
            if target is None:
                return qualified
            try:
                followed = self.module(path).absolute(target)
            except UnparsableModule:
                return qualified
            if followed == qualified:
                return qualified
            qualified = followed
        return qualified

    def resolved_names(self, module: Module, node: cst.CSTNode) -> set[str]:
        """Qualified names ``node`` may stand for, re-exports followed."""
        return {self.resolve(found) for found in module.qualified_names(node)}

    def class_definition(self, qualified: str) -> tuple[Module, cst.ClassDef] | None:
        """Module and definition of a top-level class of the backend, if ``qualified`` names one."""
        module, statement = self._definition(qualified)
        return (module, statement) if module is not None and isinstance(statement, cst.ClassDef) else None

    def function_parameters(self, qualified: str) -> tuple[str, ...] | None:
        """Parameter names of a top-level function of the backend, if ``qualified`` names one."""
        _, statement = self._definition(qualified)
        if not isinstance(statement, cst.FunctionDef):
            return None
        return tuple(p.name.value for p in (*statement.params.params, *statement.params.kwonly_params))

    def _definition(self, qualified: str) -> tuple[Module, cst.ClassDef | cst.FunctionDef] | tuple[None, None]:
        module_name, _, name = self.resolve(qualified).rpartition(".")
        path = self._paths.get(module_name)
        if path is None:
            return None, None
        try:
            module = self.module(path)
        except UnparsableModule:
            return None, None
        for statement in module.tree.body:
            if isinstance(statement, cst.ClassDef | cst.FunctionDef) and statement.name.value == name:
                return module, statement
        return None, None

    def aliases(self, name: str) -> set[str]:
        """Other names under which any module of the backend imports ``name``."""
        pattern = re.compile(rf"\b{re.escape(name)}\s+as\s+(\w+)")
        return {alias for text in self._texts.values() for alias in pattern.findall(text)}

    def search(self, pattern: str) -> bool:
        """Whether a regular expression matches in any Python file of the backend."""
        compiled = re.compile(pattern)
        return any(compiled.search(text) for text in self._texts.values())

    def imported_elsewhere(self, module: Module, name: str) -> bool:
        """Whether another file of the backend may take ``name`` from ``module`` (notebooks included).

        Errs on the side of yes: a star import or an attribute on a module of that name counts.
        """
        last = module.name.rpartition(".")[2]
        imports = re.compile(rf"from\s+[\w.]*\b{re.escape(last)}\s+import\b")
        word = re.compile(rf"\b{re.escape(name)}\b")
        dotted = re.compile(rf"\b{re.escape(last)}\s*\.\s*{re.escape(name)}\b")
        for path, text in (*self._texts.items(), *self._notebooks.items()):
            if path == module.path:
                continue
            if dotted.search(text):
                return True
            for statement in imports.finditer(text):
                clause = text[statement.end() : statement.end() + 2000]
                end = clause.find(")") if clause.lstrip(" \t\\\r\n").startswith("(") else clause.find("\n")
                clause = clause if end < 0 else clause[:end]
                if "*" in clause or word.search(clause):
                    return True
        return False

    def mentions(self, attribute: str, besides: str) -> bool:
        """Whether ``.attribute`` occurs in any file other than the one at path ``besides``."""
        pattern = re.compile(rf"\.\s*{re.escape(attribute)}\b")
        return any(
            pattern.search(text) for path, text in (*self._texts.items(), *self._notebooks.items()) if path != besides
        )


def _dotted(path: str) -> str:
    return re.sub(r"/__init__$", "", path.removesuffix(".py")).replace("/", ".")


def _import_target(text: str, name: str) -> str | None:
    """Where a module's text imports ``name`` from at top level, as ``module.name``; ``None`` when it does not."""
    for match in re.finditer(r"(?m)^from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\r\n#]*)", text):
        for clause in re.sub(r"#[^\r\n]*", "", match.group(2)).strip("()").split(","):
            words = clause.split()
            if words and words[-1] == name and len(words) in (1, 3):
                return f"{match.group(1)}.{words[0]}"
    return None
