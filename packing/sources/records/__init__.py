"""Records read: their values as roles want them, ids that are given, groups."""
