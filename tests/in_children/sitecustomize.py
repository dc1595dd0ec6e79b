"""Runs in every Python process that a test starts, before its program: see ``start_method_of_tests``."""

import os

import start_method_of_tests as tests

if os.environ.get(tests.METHOD):
    tests.use(os.environ[tests.METHOD])
if os.environ.get(tests.FORKS):
    tests.note_forks(os.environ[tests.FORKS])
