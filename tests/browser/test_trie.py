"""The Trie page by hand: from the forest through strip and icicle to a token, rows and links."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
