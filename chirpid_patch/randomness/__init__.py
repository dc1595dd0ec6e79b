"""Random numbers that belong to samples, and generators put back as they were."""
