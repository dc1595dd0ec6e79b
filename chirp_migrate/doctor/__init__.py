"""Implement ``chirp-migrate doctor``, which runs a training and reports its data loading problems.

The parent process (:mod:`.session`) starts a child process (:mod:`.runner`). An entry point is a training function or
script of the user. The child process runs each entry point for two short epochs, and records the training in a
:class:`~.recording.Recording` (:mod:`.watch`). Each check in :mod:`.checks` is a function that reads a recording and
yields problems. No check runs the user's code.
"""
