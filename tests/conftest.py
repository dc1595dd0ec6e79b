"""What every test runs under."""

from __future__ import annotations

import os

# Tests run in several processes, and most start more: on one thread each, they do not wait for each other's threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
