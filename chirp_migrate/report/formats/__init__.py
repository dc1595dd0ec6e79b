"""Findings in the formats of other programs: SARIF, and annotations of GitHub."""
