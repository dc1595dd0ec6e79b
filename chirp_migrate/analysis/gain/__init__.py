"""Find the gain of migrating a loader, such as batched reading, picklable objects or pinned transfers."""
