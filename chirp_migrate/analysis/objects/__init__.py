"""Objects that a program creates and their contents: the analysis runs the program on abstract values only."""
