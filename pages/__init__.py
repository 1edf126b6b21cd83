"""What a person sees and does: one thin file a page, widgets in, calls below, figures out.

Streamlit puts the folder of the frame first on the module path, where the pages ``packing.py`` and
``kernels.py`` would hide the packages of these names; it is taken off again here.
"""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
