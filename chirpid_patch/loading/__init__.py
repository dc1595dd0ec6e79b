"""The loader, which loads batches in this process, with threads, or with worker processes.

To understand this package, read the module ``loader`` first, and then ``batch_requests``. The module
``chirpid_patch.factory`` chooses the number of workers.
"""
