"""How large a store is: for whoever writes one, and for whoever reads one."""

from pathlib import Path

from documents import fences

from holdfast.stores.protocol import Store

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "howto" / "test-your-own-store.md"


def test_a_store_has_at_most_sixteen_methods() -> None:
    methods = {name for name, value in vars(Store).items() if callable(value) and not name.startswith("_")}
    assert len(methods - {"close"}) <= 16, sorted(methods)


def test_the_store_of_the_document_fits_in_150_lines() -> None:
    [store] = [fence for fence in fences(DOCUMENT) if fence.option("file") == "dict_store.py"]
    assert len(store.text.splitlines()) <= 150
