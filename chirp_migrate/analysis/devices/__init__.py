"""What is put on a device, and on which."""
