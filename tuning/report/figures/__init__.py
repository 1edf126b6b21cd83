"""Figures: data in, figure out; the pages and the report draw the same ones.

Notable:
- no figure holds more than 300 hierarchical marks or 300 KB; what is larger is aggregated first
- colours are Okabe and Ito's, told apart by people who see few hues, and by dash and symbol too
"""
