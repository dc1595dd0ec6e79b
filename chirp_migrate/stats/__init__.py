"""Ratios with intervals, looks at data still coming in, tests for equal distributions. It imports nothing of ours."""
