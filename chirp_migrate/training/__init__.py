"""Training run in child processes and watched: shared by ``verify`` and ``tune``.

It knows what to train, runs it in processes of its own, and watches its loaders; it may import ``source``.
"""
