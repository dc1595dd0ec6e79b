"""A changed call keeps the layout of its lines."""

from __future__ import annotations

import pytest

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.syntax.project import Project

CALL = """\
from torch.utils.data import DataLoader


def make(dataset):
\tloader = DataLoader(dataset,
{0}batch_size=4,
{0}collate_fn=build(dataset,
{0}                 dataset),
{0}shuffle=True)
\treturn loader
"""
BELOW = """\
\tloader = OptimalDataLoaderFactory.create_loader(
\t\tdataset,
\t\tbatch_size=4,
\t\tcollate_fn=build(dataset,
\t\t                 dataset),
\t\tshuffle=True)
"""


@pytest.mark.parametrize("aligned", ["\t" + " " * 20, "\t\t\t" + " " * 4, " " * 28])
def test_lines_that_are_aligned_in_a_file_with_tabs_move_below_the_new_name(aligned: str) -> None:
    """The lines are aligned by spaces behind the tabs of the statement, by tabs of eight columns, or by spaces."""
    text = CALL.format(aligned)
    after, _ = rewrite_text("train.py", text, Project({"train.py": text}))
    assert BELOW in after
