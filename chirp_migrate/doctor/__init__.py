"""``chirp-migrate doctor``: report the loading problems that a real training run shows.

The parent process (:mod:`.session`) starts a child process (:mod:`.runner`) that trains each entry point for two short
epochs under a watch (:mod:`.watch`). The result is a :class:`~.recording.Recording` of each entry point. Each check in
:mod:`.checks` is one function that reads a recording and yields problems; a check runs no code of the user.
"""
