"""AReaL trains trees through Espalier: packing, attention, log-probabilities and the head.

``ESPALIER_AREAL=1`` switches it on in every process that has it, before AReaL is imported
(``hook``); ``patch.apply()`` does the same by hand. See ``docs/areal-plugin.md``.

Notable:
- nothing is imported here: ``hook`` runs at the start of Python, long before torch
"""
