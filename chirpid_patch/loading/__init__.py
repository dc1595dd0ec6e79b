"""The loader: in this process, ahead in threads, or in worker processes.

``loader`` is where to begin, ``requests`` says what is read. May import ``datasets``, ``transforms``, ``randomness``
and ``machine``. Loads as it is told to: how many workers there are is decided by ``factory``.
"""
