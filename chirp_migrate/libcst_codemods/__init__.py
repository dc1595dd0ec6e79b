"""The rules as codemods of LibCST's own tool: ``python -m libcst.tool codemod migrate.MigrateCommand backend/``.

For teams that run their codemods that way. LibCST then chooses the files, formats and writes them; there is no review,
no journal and so no ``rollback``. What is rewritten is what ``chirp-migrate apply`` would rewrite.
"""
