"""``chirp-migrate tune``: measure loading modes of one dataset, and recommend settings.

The parent process (:mod:`.session`) starts a child (:mod:`.runner`) that runs the user's code, measures, and draws
conclusions (:mod:`.plateau`, :mod:`.recommend`). Its result is the document that the parent prints (:mod:`.report`,
:mod:`.plot`).
"""
