"""What a measurement was taken on goes into documents, and on one line."""

from __future__ import annotations

import msgspec

from chirp_migrate.training.process.machine import describe_machine, machine_summary


def test_the_machine_is_plain_values() -> None:
    found = describe_machine(2)
    assert msgspec.json.decode(msgspec.json.encode(found)) == found
    assert f"torch {found['torch']} with 2 threads" in machine_summary(found)
