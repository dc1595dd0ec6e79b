"""Stub of lmdb: objects that cannot be pickled."""


class _Open:
    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle LMDB objects")


class Transaction(_Open):
    def get(self, key):
        return b"1"

    def cursor(self):
        return _Open()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class Environment(_Open):
    def __init__(self, path, **options):
        self.path = path

    def begin(self, write=False):
        return Transaction()


def open(path, **options):
    return Environment(path, **options)
