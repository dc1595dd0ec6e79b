"""What a measurement was taken on goes into documents, and on one line."""

from __future__ import annotations

import msgspec

from chirp_migrate.training.process.machine import describe, summary_line


def test_the_machine_is_plain_values() -> None:
    found = describe(2)
    assert msgspec.json.decode(msgspec.json.encode(found)) == found
    assert f"torch {found['torch']} with 2 threads" in summary_line(found)
