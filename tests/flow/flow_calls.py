"""Functions that the flows of these tests call."""

from holdfast import Secret

calls: list[tuple[str, object]] = []


def double(number: int) -> int:
    calls.append(("double", number))
    return number * 2


def fail(times: int) -> str:
    """Fails so many times, then does not."""
    calls.append(("fail", times))
    if len([one for one in calls if one[0] == "fail"]) <= times:
        raise ValueError("not yet")
    return "done"


def remember(**given: object) -> dict[str, object]:
    calls.append(("remember", given))
    return {"given": sorted(given)}


def length(token: Secret) -> int:
    return len(token.reveal())


def leak(token: Secret) -> str:
    raise ValueError(f"the token {token.reveal()} is wrong")


def forget(what: str) -> None:
    calls.append(("forget", what))


def unstorable() -> object:
    return object()


def keep(token: Secret) -> Secret:
    return token


def leave() -> None:
    raise SystemExit(3)
