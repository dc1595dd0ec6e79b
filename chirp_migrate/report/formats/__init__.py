"""Write findings for other programs: as SARIF documents, and as annotations that GitHub shows next to the code."""
