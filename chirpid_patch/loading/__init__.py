"""The loader, which loads batches in this process, with threads, or with worker processes.

To understand the package, read ``loader`` first, and then ``batch_requests``. The package may import ``datasets``,
``transforms``, ``randomness`` and ``machine``. ``factory`` decides the number of workers.
"""
