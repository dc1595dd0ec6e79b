"""Random transforms, which return a new tensor for a single sample, and change a whole batch in place.

To write a new transform, subclass ``BatchTransform``.

"""
