"""What the conformance suite of stores asks of those who use it."""

import pytest

from tapstore.testing.stores import StoreTests, overrides_contract
from tapstore.types import Capabilities


def test_a_test_that_is_overridden_needs_a_reason():
    with pytest.raises(TypeError, match="test_delete_removes needs @overrides_contract"):

        class TestWeaker(StoreTests):
            def test_delete_removes(self):
                pass


def test_a_test_that_is_left_out_needs_a_reason():
    with pytest.raises(TypeError, match="overrides_contract"):

        class TestWeaker(StoreTests):
            test_delete_removes = None


def test_a_reason_is_enough():
    class TestWeaker(StoreTests):
        capabilities = Capabilities(
            create=True, update=False, conditional_delete=False, files=False
        )

        @overrides_contract(reason="it takes a minute there")
        def test_delete_removes(self):
            pass

    assert TestWeaker.test_delete_removes.overrides_contract == "it takes a minute there"


def test_what_a_place_does_not_offer_is_not_tested():
    class TestCreateOnly(StoreTests):
        capabilities = Capabilities(
            create=True, update=False, conditional_delete=False, files=False
        )

    assert TestCreateOnly.test_no_concurrent_update_is_lost is None
    assert TestCreateOnly.test_update_is_refused_by_name is not None
