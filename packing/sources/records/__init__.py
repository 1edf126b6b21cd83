"""Records of any ecosystem as those that roles are given to: layouts, dialects, ids, groups."""
