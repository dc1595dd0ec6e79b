"""Dataset programs that hold objects of many kinds in many places, and whether workers can be sent them."""
