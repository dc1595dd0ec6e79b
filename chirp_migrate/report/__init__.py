"""Report on a migration: collect its data (:mod:`.story`), and render them as a web page or for a terminal."""
