"""Gains of migrating a loader: batched reading, picklable workers, pinned transfers, or nothing."""
