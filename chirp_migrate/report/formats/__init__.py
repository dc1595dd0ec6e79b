"""Write findings in formats that other programs read: SARIF, and annotations of GitHub."""
