"""How output looks on a terminal, and where ``--json`` goes. It imports nothing but errors."""
