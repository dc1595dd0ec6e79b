"""Provide the rules as LibCST codemods, for ``python -m libcst.tool codemod migrate.MigrateCommand backend/``.

These codemod commands are for teams that run all their codemods with LibCST's own tool. With these commands, LibCST
chooses, formats and writes the files. The commands have no review step, and write no journal, so ``chirp-migrate
rollback`` cannot undo the changes. The commands make the same rewrites as ``chirp-migrate apply``.
"""
