"""Report on a migration: collect its data (:mod:`.contents`), and render them as a web page or for a terminal."""
