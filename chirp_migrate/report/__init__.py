"""Reports of a migration: as data (:mod:`.story`), then as a page or lines."""
