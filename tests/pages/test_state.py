"""The plan against an address that lags behind it."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest


def _page() -> None:
    import streamlit as st

    from pages.shared import state

    def up() -> None:
        state.update(max_tokens_per_mb=state.plan().max_tokens_per_mb + 128)

    if st.session_state.pop("ticks", False):
        state.redraw()
    state.read_url()
    st.button("up", on_click=up)
    st.text(str(state.plan().max_tokens_per_mb))
    state.write_url()


@pytest.fixture
def page() -> AppTest:
    page = AppTest.from_function(_page)
    page.query_params["cap"] = "4096"
    return page.run()


def _comes_with(page: AppTest, address: dict[str, Any]) -> AppTest:
    page.query_params.clear()
    page.query_params.update(address)
    return page


def _cap(page: AppTest) -> str:
    assert not page.exception
    assert page.query_params["cap"] in (page.text[0].value, [page.text[0].value])
    return str(page.text[0].value)


def test_presses_that_come_with_an_earlier_address_all_count(page: AppTest) -> None:
    first = dict(page.query_params)
    page.button[0].click().run()
    assert _cap(page) == "4224"
    second = dict(page.query_params)
    for address, cap in ((first, "4352"), (second, "4480"), (first, "4608")):
        _comes_with(page, address).button[0].click().run()
        assert _cap(page) == cap


def test_a_timer_that_comes_with_an_earlier_address_changes_nothing(page: AppTest) -> None:
    first = dict(page.query_params)
    page.button[0].click().run()
    page.session_state["ticks"] = True
    _comes_with(page, first).run()
    assert _cap(page) == "4224"


def test_back_brings_the_earlier_plan(page: AppTest) -> None:
    first = dict(page.query_params)
    page.button[0].click().run()
    _comes_with(page, first).run()
    assert _cap(page) == "4096"


def test_another_address_is_taken_at_once(page: AppTest) -> None:
    page.button[0].click().run()
    _comes_with(page, {"cap": "9216"}).run()
    assert _cap(page) == "9216"
