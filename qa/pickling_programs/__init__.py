"""Generated programs whose datasets hold objects of many kinds, and whether workers can unpickle these objects."""
