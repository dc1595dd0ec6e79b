"""The loader: in this process, with prefetching threads, or with worker processes.

Read ``loader`` first; ``batch_requests`` defines what is read. The package may import ``datasets``, ``transforms``,
``randomness`` and ``machine``. ``factory`` decides the number of workers.
"""
