"""Generate programs whose datasets contain objects of many kinds, and check whether these objects can be pickled."""
