"""AReaL's configs: their schema by version, reading and writing a user's file, asking AReaL."""
