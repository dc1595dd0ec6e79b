"""``chirp-migrate doctor``: run a training and report its loading problems.

The parent process (:mod:`.session`) starts a child process (:mod:`.runner`). The child trains each entry point for two
short epochs, and makes a :class:`~.recording.Recording` of each entry point (:mod:`.watch`). Each check in
:mod:`.checks` is one function that reads a recording and yields problems. A check does not run the user's code.
"""
