"""Stub of torchvision.transforms."""


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, sample):
        for one in self.transforms:
            sample = one(sample)
        return sample


class Lambda:
    def __init__(self, lambd):
        self.lambd = lambd

    def __call__(self, sample):
        return self.lambd(sample)
