"""``chirp-migrate tune``: measure loading modes of one dataset, and recommend settings (R-004).

The parent process (:mod:`.session`) starts a child (:mod:`.runner`) that runs the user's code, measures and concludes
(:mod:`.plateau`, :mod:`.recommend`); its answer is the document that the parent shows (:mod:`.report`, :mod:`.plot`).
"""
