"""The rules as codemods of LibCST's own tool: ``python -m libcst.tool codemod migrate.MigrateCommand backend/``.

This is for teams that run all their codemods with LibCST's tool. LibCST then chooses, formats and writes the files.
There is no review and no journal, so ``rollback`` is not possible. The rewrites are those of ``chirp-migrate apply``.
"""
