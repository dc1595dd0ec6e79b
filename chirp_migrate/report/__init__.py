"""Report on a migration: collect the data (:mod:`.contents`), and render the data as a web page or for a terminal."""
