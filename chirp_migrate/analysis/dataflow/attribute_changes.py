"""Whether an attribute is ever given another value, or what it holds is changed in place."""

from __future__ import annotations

import ast
import re

from chirp_migrate.syntax.module import Module, UnparsableModule, syntax_tree
from chirp_migrate.syntax.project import Project


def is_changed(module: Module, project: Project, attribute: str) -> bool:
    """Whether anything but one assignment in ``module``, and those to ``self`` in other files, changes an attribute."""
    given = 0
    for _, text in project.matching(re.compile(rf"\.\s*{re.escape(attribute)}\b"), attribute):
        try:
            tree = syntax_tree(text)
        except UnparsableModule:
            return True
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == attribute and not isinstance(node.ctx, ast.Load):
                own = isinstance(node.value, ast.Name) and node.value.id == "self" and isinstance(node.ctx, ast.Store)
                given += text == module.text
                if text != module.text and not own:
                    return True
            stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
            holder = node.func if isinstance(node, ast.Call) else node if stored else None
            held = holder.value if isinstance(holder, ast.Attribute | ast.Subscript) else None
            if isinstance(held, ast.Attribute) and held.attr == attribute:
                return True
    return given != 1
