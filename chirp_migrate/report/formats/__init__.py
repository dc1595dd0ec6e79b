"""Write findings in formats of other programs: SARIF, and annotations of GitHub."""
