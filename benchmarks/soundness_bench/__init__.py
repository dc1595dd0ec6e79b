"""Programs made up at random, migrated, and run before and after."""
