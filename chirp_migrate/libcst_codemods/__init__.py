"""The rules as codemods of LibCST's own tool: ``python -m libcst.tool codemod migrate.MigrateCommand backend/``.

This is for teams that run their codemods with that tool. LibCST then chooses, formats and writes the files. There is no
review, no journal and so no ``rollback``. The rewrites are those of ``chirp-migrate apply``.
"""
