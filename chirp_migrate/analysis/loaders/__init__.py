"""Which calls build loaders, what they are for, and what else loads data by hand."""
