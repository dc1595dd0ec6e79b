"""``python -m chirp_migrate``: the same as the command ``chirp-migrate``."""

from __future__ import annotations

from chirp_migrate.cli import entry_point

if __name__ == "__main__":
    entry_point()
