"""A loader that reads several loaders in turns, and a function that divides worker processes among loaders."""
