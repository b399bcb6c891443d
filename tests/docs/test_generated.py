"""The generated pages and pictures are as `python docs/generate.py` makes them, and no public name is missing."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import holdfast
from holdfast import errors

DOCS = Path(__file__).resolve().parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date() -> None:
    stale = [str(path.relative_to(DOCS)) for path in generator().stale()]
    assert stale == [], "run `python docs/generate.py`"


def test_every_public_name_is_in_the_reference() -> None:
    pages = (DOCS / "reference" / "api-details.md").read_text() + (DOCS / "reference" / "errors.md").read_text()
    missing = [name for name in holdfast.__all__ if f"`{name}`" not in pages and f"`holdfast.{name}`" not in pages]
    assert missing == []


def test_every_public_attribute_and_method_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "api-details.md").read_text()
    with holdfast.open("memory://") as hf, hf.run("a").claim() as run:
        run.save({"n": 1})
        for thing in (hf, run, run.checkpoint()):
            name = type(thing).__name__
            section = page.partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
            listed = set(re.findall(r"^- \*\*`(\w+)", section, re.MULTILINE))
            public = {attribute for attribute in dir(thing) if not attribute.startswith("_")} - generator().OWN
            assert public <= listed, f"not in the section on {name}: {public - listed}"


def test_the_whole_interface_fits_on_three_screens() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    lines = page.splitlines()
    assert len(lines) <= 180
    assert [line for line in lines if len(line) > 200] == []
    shown = set(re.findall(r"`\.?(?:holdfast\.)?(\w+)", page))
    assert set(holdfast.__all__) <= shown
    for handle in (holdfast.Holdfast, holdfast.Run, holdfast.Queue, holdfast.Schedule):
        assert {name for name in dir(handle) if not name.startswith("_")} - generator().OWN <= shown


def test_every_error_is_drawn_in_the_tree() -> None:
    tree = errors.__doc__ or ""
    classes = [name for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, Exception)]
    assert [name for name in classes if name not in tree] == []
