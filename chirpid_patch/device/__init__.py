"""What concerns the device that trains."""
