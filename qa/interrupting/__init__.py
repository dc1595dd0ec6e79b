"""Interrupt commands at random moments or with a full disk, and check the files that the commands leave."""
