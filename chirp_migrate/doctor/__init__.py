"""``chirp-migrate doctor``: run a training and report its loading problems.

The parent process (:mod:`.session`) starts a child process (:mod:`.runner`). The child trains each entry point for two
short epochs and records them (:mod:`.watch`). The result is a :class:`~.recording.Recording` of each entry point. Each
check in :mod:`.checks` is one function that reads a recording and yields problems; a check runs no code of the user.
"""
