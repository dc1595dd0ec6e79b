"""Commands for LibCST's own tool, as in ``python -m libcst.tool codemod migrate.MigrateCommand backend/``.

These commands are for teams that run all their codemods with LibCST's tool. LibCST chooses, formats and writes the
files. The commands have no review and no journal, so ``rollback`` is not possible. The rewrites are the same as with
``chirp-migrate apply``.
"""
