"""Memory maps that are pickled whole are spoken of; nothing is rewritten."""

from __future__ import annotations

import pytest
from rule_programs import advice, dataset


@pytest.mark.parametrize(
    ("init", "found"),
    [
        ("self.m = np.memmap(x)", True),
        ("self.m = np.load(x, mmap_mode='r')", True),
        ("self.m = [np.load(one, mmap_mode='c') for one in x]", True),
        ("self.m = np.lib.format.open_memmap(x)", True),
        ("self.m = np.load(x, mmap_mode=None)", False),
        ("self.m = np.load(x, mmap_mode='r')[:]", False),
        ("self.m = np.load(x)", False),
        ("m = np.memmap(x)\nself.n = len(m)", False),
    ],
)
def test_memory_maps_are_pickled_whole(init: str, found: bool) -> None:
    said = advice("CHP022", dataset(init))
    assert ["pickling a memory map copies the whole file" in one for one in said] == ([True] if found else [])
