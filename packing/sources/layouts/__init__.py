"""Layouts of records that are known: of tools, of APIs and their logs, of data sets."""
