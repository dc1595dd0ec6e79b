"""The LibCST command that runs all rules, and the base class of the commands that run a single rule."""

from __future__ import annotations

from abc import ABC
from pathlib import Path

import libcst as cst
from libcst.codemod import CodemodCommand, SkipFile

from chirp_migrate.libcst_codemods.backend_plan import ChangesOfFile, PlannedChangesProvider
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.text import SourceFile, apply_edits

_ALONE = (
    "the rewrite depends on other files of the project, which standard input does not contain: "
    "pass files and folders, or use chirp-migrate."
)
_CHANGED = "the file changed while the plan was being made: run the command again."
_REFORMATTED = "LibCST would change further white space in the file: use chirp-migrate apply."


class PlanApplyingCommand(CodemodCommand, ABC):
    """Base class of commands that apply the plan of the project to each file.

    Each subclass has one metadata dependency: :class:`PlannedChangesProvider`, or a subclass of it.
    """

    def transform_module(self, tree: cst.Module) -> cst.Module:
        """Return the rewritten module.

        Raises:
            libcst.codemod.SkipFile: the source comes from standard input, the file is excluded or cannot be rewritten,
                or LibCST would change further white space in the file.
        """
        if self.context.metadata_manager is None or self.context.filename is None:
            self.warn(_ALONE)  # LibCST's tool does not print the message of SkipFile for standard input
            raise SkipFile(_ALONE)
        return super().transform_module(tree)

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """Return the module with the edits of the plan, and warn about each finding that is not rewritten."""
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
        "Migrate a PyTorch training project to worker-safe data loading, with all rules that its settings select."
    )
    METADATA_DEPENDENCIES = (PlannedChangesProvider,)
