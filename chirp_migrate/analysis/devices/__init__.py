"""Find objects that code moves to a device, and the device."""
