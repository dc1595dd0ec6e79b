"""Copy both versions of the project to separate folders."""
