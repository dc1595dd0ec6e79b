"""The loader, which loads batches in this process, with threads, or with worker processes.

To understand the package, read the module ``loader`` first, and then ``batch_requests``. The module ``factory`` of
``chirpid_patch`` chooses the number of workers.
"""
