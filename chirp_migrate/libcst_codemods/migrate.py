"""Define the LibCST command that runs all rules, and the base class of all LibCST commands."""

from __future__ import annotations

from abc import ABC
from pathlib import Path

import libcst as cst
from libcst.codemod import CodemodCommand, SkipFile

from chirp_migrate.libcst_codemods.backend_plan import ChangesOfFile, PlannedChangesProvider
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.text import SourceFile, apply_edits

_ALONE = (
    "standard input contains only one file, but the rewrites depend on other files of the project: "
    "pass files and folders, or use chirp-migrate."
)
_CHANGED = "the file changed after its rewrite was planned: run the command again."
_REFORMATTED = "LibCST would also change white space outside of the edits in this file: use `chirp-migrate apply`."


class PlanApplyingCommand(CodemodCommand, ABC):
    """Base class of LibCST commands that apply the plan of a project to each of its files.

    Each subclass must have exactly one metadata dependency: :class:`PlannedChangesProvider` or one of its subclasses.
    """

    def transform_module(self, tree: cst.Module) -> cst.Module:
        """Return the rewritten module of a file.

        Raises:
            libcst.codemod.SkipFile: the source comes from standard input, the file is excluded or cannot be rewritten,
                the file changed after the plan was made, or LibCST would also change white space outside of the edits.
        """
        if self.context.metadata_manager is None or self.context.filename is None:
            self.warn(_ALONE)  # LibCST's tool does not print the message of SkipFile for standard input
            raise SkipFile(_ALONE)
        return super().transform_module(tree)

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """Apply the planned edits to the module, and warn about each finding that is not rewritten."""
        (plan,) = self.METADATA_DEPENDENCIES
        planned = self.get_metadata(plan, tree)
        assert isinstance(planned, ChangesOfFile)
        if planned.obstacle is not None:
            raise SkipFile(planned.obstacle)
        for remark in planned.remarks:
            self.warn(remark)
        assert self.context.filename is not None
        data = Path(self.context.filename).read_bytes()
        if sha256(data) != planned.digest:
            raise SkipFile(_CHANGED)
        if tree.bytes != data:
            raise SkipFile(_REFORMATTED)
        if not planned.edits:
            return tree
        source = SourceFile.from_bytes(data)
        text = apply_edits(source.text, planned.edits)
        result = cst.parse_module(text, tree.config_for_parsing)
        if result.bytes != source.encode(text):
            raise SkipFile(_REFORMATTED)
        return result


class MigrateCommand(PlanApplyingCommand):
    """The command that applies all rules that the settings of the project select."""

    DESCRIPTION = (
        "Migrate a PyTorch training project to worker-safe data loading, with the rules that the project's settings "
        "select."
    )
    METADATA_DEPENDENCIES = (PlannedChangesProvider,)
