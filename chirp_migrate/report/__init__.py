"""Reports of a migration: data (:mod:`.story`), rendered as a page or as lines."""
