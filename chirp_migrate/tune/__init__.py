"""``chirp-migrate tune``: measure ways of loading one dataset, and say which settings to change (R-004).

The parent process (:mod:`.session`) starts a child (:mod:`.runner`) that runs the user's code and measures; what is
concluded from it (:mod:`.plateau`, :mod:`.recommend`) and shown (:mod:`.report`, :mod:`.plot`) is pure.
"""
