"""What became of a backend, told to people who were not there: as data (:mod:`.story`), then as a page or lines."""
