"""What `import holdfast` offers, that all of it is documented, and that it costs little."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

import holdfast
from holdfast import errors

HEAVY = ("asyncio", "click", "rich", "jinja2", "yaml", "psycopg", "pydantic", "cryptography", "sqlite3")

CAUGHT = {
    "AnswerRefused",
    "Claimed",
    "HoldfastError",
    "NotDone",
    "RunBlocked",
    "RunCancelled",
    "RunEnded",
    "RunNotFound",
    "TimedOut",
    "UsageError",
}


def public(name: str) -> bool:
    return not name.startswith("_")


def test_the_names_are_sorted_and_there() -> None:
    assert sorted(holdfast.__all__, key=lambda name: (not name.isupper(), name)) == holdfast.__all__
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert set(holdfast.__all__) <= set(dir(holdfast))


def test_errors_that_programs_catch_are_public_names_and_all_are_in_the_tree() -> None:
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and public(name)}
    assert classes & set(holdfast.__all__) == CAUGHT
    assert len(holdfast.__all__) <= 77
    for name in classes:
        assert issubclass(getattr(errors, name), errors.HoldfastError)
        assert name in (errors.__doc__ or ""), f"{name} is not in the tree of errors"


def test_every_view_is_a_public_name() -> None:
    """A user never holds something of ours whose name cannot be imported from `holdfast`."""
    from holdfast import views

    classes = {name for name, value in vars(views).items() if getattr(value, "__module__", "") == views.__name__}
    assert {name for name in classes if public(name) and isinstance(getattr(views, name), type)} <= set(
        holdfast.__all__
    )


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        holdfast.nonsense  # noqa: B018


def documented() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in holdfast.__all__:
        value = getattr(holdfast, name)
        found.append((name, value))
        if isinstance(value, type) and not issubclass(value, Exception):
            for member in dir(value):
                attribute = inspect.getattr_static(value, member)
                defined_by_us = any(
                    member in vars(base) for base in value.__mro__ if base.__module__.startswith("holdfast")
                )
                if public(member) and defined_by_us and (callable(attribute) or isinstance(attribute, property)):
                    found.append((f"{name}.{member}", attribute))
    return found


@pytest.mark.parametrize(("name", "value"), documented(), ids=lambda value: value if isinstance(value, str) else "")
def test_everything_public_has_a_docstring(name: str, value: Any) -> None:
    assert (value.__doc__ or "").strip(), f"{name} has no docstring"


def test_operations_are_documented_where_they_are_read() -> None:
    assert "Checkpoint the state" in holdfast.Run.save.__doc__
    with holdfast.open("memory://") as hf:
        assert "Checkpoint the state" in hf.run("run").save.__doc__


def loaded_by(code: str) -> set[str]:
    check = f"import sys; {code}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_loads_nothing_heavy() -> None:
    assert loaded_by("import holdfast") == set()
    assert loaded_by("from holdfast import Run, Keyring, Status, open, errors") == set()


def test_using_a_store_loads_nothing_heavy(memdir: Any) -> None:
    code = "import holdfast; hf = holdfast.open({url!r}); run = hf.run('r'); run.save(1); run.once('k', len, '')"
    assert loaded_by(code.format(url="memory://")) == set()
    assert loaded_by(code.format(url=f"files:///{memdir}/runs")) == set()
    assert loaded_by(code.format(url=f"sqlite:///{memdir}/runs.db")) == {"sqlite3"}


def test_the_version_is_the_projects() -> None:
    from importlib.metadata import version

    assert holdfast.__version__ == version("holdfast")
