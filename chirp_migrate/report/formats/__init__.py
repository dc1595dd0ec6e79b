"""Write findings as SARIF documents and as annotations of GitHub, which other programs read."""
