"""Report on a migration: collect the data of a report (:mod:`.contents`), and render it as a web page or as text."""
