"""Runs in every Python process that a test starts, before its program: see the two modules beside."""

import os

import start_method_of_tests as start_method

if os.environ.get(start_method.METHOD):
    start_method.use(os.environ[start_method.METHOD])
if os.environ.get(start_method.FORKS):
    start_method.note_forks(os.environ[start_method.FORKS])
if os.environ.get("CHIRP_TESTS_NO_POSIX"):
    import no_posix

    no_posix.take_away()
