"""Both sides of a verification as copies in folders of their own."""
