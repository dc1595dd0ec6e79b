"""CHP020: report scripts without a `__main__` guard, which worker processes run again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from chirp_migrate.analysis.loaders.loader_calls import may_pass_loader_argument_by_position
from chirp_migrate.analysis.objects.at_import import (
    GIVES_WORKERS,
    find_worker_starts_at_import,
    may_start_workers_at_import,
    modules_with_loaders,
)
from chirp_migrate.rules.api import Module, Outline, Project, Rule, RuleMatch, Safety
from chirp_migrate.rules.unpicklable import has_word

_WORKERS = ("num_workers",)
#: A top-level statement that is neither a definition nor an import. It runs when another module imports this module.
_TOP_LEVEL = re.compile(r"(?:^|[\r\n])(?!(def|class|async|import|from|if __name__)\b)[\w(\[{*][^\r\n]|;[ \t]*\w")


class UnguardedScript(Rule):
    code = "CHP020"
    name = "unguarded-script"
    reason = (
        "Workers that are not forked (macOS, Windows, and Linux with Python 3.14 or later) import the main script. "
        'Without `if __name__ == "__main__":` each worker runs the whole script again. If a training run fails for '
        "this reason, `doctor` names the line."
    )
    safety = Safety.ADVICE
    stops_workers = True
    trigger = _WORKERS
    beside = (_TOP_LEVEL,)
    follows = frozenset({"CHP001"})

    def names(self, project: Project) -> Set[str]:
        """Return the names of the modules that build loaders, because a script may import such a module."""
        return modules_with_loaders(project)

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the text, or a module that the text imports, may build a loader with workers."""
        gives = "oader" in text and GIVES_WORKERS.search(text) is not None
        is_beside = super().concerns(text, project) and (gives or has_word(text, self.names(project)))
        return is_beside and may_start_workers_at_import(project, text)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether the import of the module may iterate over a loader with workers."""
        return bool(find_worker_starts_at_import(project, outline.path))

    def may_follow(self, module: Module, project: Project, rewriters: frozenset[str]) -> bool:
        """Return whether a rewrite may turn a positional ``num_workers`` into a keyword argument.

        The rule only looks at keyword arguments. So after such a rewrite, the rule may report a call that the rule did
        not report before.
        """
        return super().may_follow(module, project, rewriters) and may_pass_loader_argument_by_position(
            module, "num_workers"
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report loaders with workers that are iterated over when the module is imported."""
        if module.path.endswith((".ipynb", "__main__.py")):  # workers run neither notebooks nor `python -m package`
            return
        for one in find_worker_starts_at_import(project, module.path):
            node = one.place.node
            what = "this loader with workers is built" if one.builds else "this loader with workers is iterated over"
            yield RuleMatch(
                module.offset(getattr(node, "lineno", 1), getattr(node, "col_offset", 0)),
                f"{what} when the script is imported: with spawn and forkserver (macOS, Windows, Linux from "
                'Python 3.14), each worker runs this line again. Move the line under `if __name__ == "__main__":`',
            )
