"""Which objects a program makes and what they hold: the program is run on abstract values, never for real."""
