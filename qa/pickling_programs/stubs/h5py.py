"""Stub of h5py: objects that cannot be pickled."""


class _Open:
    def __reduce_ex__(self, protocol):
        raise TypeError("h5py objects cannot be pickled")


class Dataset(_Open):
    def __getitem__(self, key):
        return [1.0, 2.0]

    def __len__(self):
        return 2


class File(_Open):
    def __init__(self, path, mode="r"):
        self.path = path

    def __getitem__(self, key):
        return Dataset()

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass
