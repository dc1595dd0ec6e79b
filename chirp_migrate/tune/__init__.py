"""``chirp-migrate tune``: measure loader settings for a dataset, and recommend the best settings.

The parent process (:mod:`.session`) starts a child process (:mod:`.runner`). The child process runs the user's code,
measures loader settings, and recommends settings (:mod:`.plateau`, :mod:`.recommend`). The parent process prints the
result (:mod:`.report`, :mod:`.plot`).
"""
