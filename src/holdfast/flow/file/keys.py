"""Every key of a flow file, in one table: what it takes, and what it means.

The check at load, the published JSON Schema (``schema.json``) and the reference page are made from it.
"""

from __future__ import annotations

from typing import Any

from holdfast.flow.file.durations import DurationShape
from holdfast.flow.file.shapes import (
    BlockShape,
    BoolShape,
    ChoiceShape,
    DataShape,
    EitherShape,
    Key,
    ListShape,
    MapShape,
    NullShape,
    NumberShape,
    Shape,
    TextShape,
    ValueShape,
)

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"
NAME = r"[A-Za-z][A-Za-z0-9_.-]{0,99}"
ID = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
STEP_ID = rf"(?!__){ID}"  # what has two is for the graph
TYPES = ("text", "integer", "number", "boolean", "list", "mapping", "any")

_text = TextShape()
_template = TextShape("text (a template)", "text", scalars=True)
_condition = TextShape("a condition, such as `vars.env == 'prod'`", "condition")
_value = ValueShape()
_duration = DurationShape()
_limit = DurationShape(positive=True)
_bool = BoolShape()

RETRY = BlockShape(
    (
        Key("times", NumberShape(1, 1000), "how often it is tried again", required=True),
        Key("delay", _duration, "how long to wait before the first time again (1s)"),
        Key("backoff", NumberShape(1, 100, whole=False), "how many times longer each further wait is (2)"),
        Key("max_delay", _duration, "the longest wait (1m)"),
        Key(
            "on",
            ListShape(NumberShape(0, 999), "a list of numbers", least=1),
            "only after these exit codes of `run`, or these status codes of `http`",
        ),
    ),
    "a number of times, or a mapping with `times`",
    "retry",
)
HTTP = BlockShape(
    (
        Key("url", _template, "where to", required=True),
        Key("method", ChoiceShape("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"), "how (GET)"),
        Key("headers", MapShape(_template, "a mapping of headers", names=r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), "headers"),
        Key("params", MapShape(_template, "a mapping of parameters", names=".+"), "what comes after the ? in the URL"),
        Key("json", _value, "the body, sent as JSON"),
        Key("body", _template, "the body, sent as text"),
        Key(
            "expect",
            ListShape(NumberShape(100, 599), "a list of status codes", least=1),
            "the status codes that are a success (200 to 299)",
        ),
        Key("follow_redirects", _bool, "whether to go where a redirect says (false)"),
    ),
    "a URL, or a mapping with `url`",
    "http",
)
FIELD = BlockShape(
    (
        Key("name", TextShape("a name", pattern=ID), "the name of the field in the answer", required=True),
        Key("type", ChoiceShape("text", "integer", "number", "boolean", "choice"), "what is asked for (text)"),
        Key("label", _text, "what people see in place of the name"),
        Key("description", _text, "what people should know about it"),
        Key("required", _bool, "whether it must be answered (true)"),
        Key("default", DataShape(), "the answer if none is given"),
        Key("options", ListShape(_text, "a list of texts", least=1), "what can be chosen"),
        Key("minimum", NumberShape(-(10**15), 10**15, whole=False), "the smallest number"),
        Key("maximum", NumberShape(-(10**15), 10**15, whole=False), "the largest number"),
        Key("min_length", NumberShape(0, 1_000_000), "the shortest text"),
        Key("max_length", NumberShape(0, 1_000_000), "the longest text"),
        Key("pattern", _text, "a regular expression that the text fits"),
    ),
    "a field: a mapping with `name`",
    "field",
)
ASK = BlockShape(
    (
        Key("prompt", _template, "the question", required=True),
        Key("type", ChoiceShape("text", "integer", "number", "boolean"), "the answer is one value of this type"),
        Key("options", ListShape(_template, "a list of texts", least=1), "the answer is one of these"),
        Key("fields", ListShape(FIELD, "a list of fields", least=1), "the answer is a form with these fields"),
        Key("default", DataShape(), "the answer if nobody gives one within `timeout`"),
    ),
    "a question, or a mapping with `prompt`",
    "ask",
)
WAIT = BlockShape(
    (
        Key(
            "for",
            EitherShape(TextShape("a duration", "value"), _duration, told="a duration, or a template of one"),
            "how long",
        ),
        Key("until", _template, "until when: a date and time such as 2030-01-31T08:00:00+01:00"),
    ),
    "a duration, or a mapping with `for` or `until`",
    "wait",
)
_CALLED = TextShape("a function, as module:function", pattern=r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*")
UNDO = BlockShape(
    (
        Key("run", _template, "a shell command"),
        Key("http", EitherShape(_template, HTTP, told=HTTP.told), "a request"),
        Key("call", _CALLED, "a Python function, as module:function"),
        Key("with", MapShape(_value, "a mapping of arguments"), "the arguments of `call`"),
        Key("timeout", _limit, "how long it may take"),
    ),
    "a shell command, or a mapping with `run`, `http` or `call`",
    "undo",
)
_FAILURE_WORDS = ChoiceShape("abort", "skip", "retry", "rollback")
_GOTO = BlockShape(
    (Key("goto", TextShape("the id of a step", pattern=ID), "the step to go on with", required=True),), ""
)
LOOP_MOST = 10_000


class _Steps(Shape):
    """The steps of a flow, or of a step: a shape that holds itself."""

    told = "a list of steps"

    def takes(self, node: Any) -> bool:
        return bool(node.kind == "list")

    def read(self, reader: Any, node: Any, path: Any) -> Any:
        return ListShape(STEP, self.told, least=1).read(reader, node, path)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1}


_steps = _Steps()
ACTIONS = ("run", "call", "http", "ask", "flow", "set", "wait", "parallel", "steps")
ACTS = ("run", "call", "http")  # the actions that do something in the world, and may have an undo
GROUPS = ("flow", "parallel", "steps")
STEP = BlockShape(
    (
        Key(
            "id",
            TextShape("an id: letters, digits and _, and not __ at its beginning", pattern=STEP_ID),
            "the step's own name",
            required=True,
        ),
        Key("title", _text, "what people see beside the id"),
        Key("run", _template, "a shell command, run by `sh -e`"),
        Key("call", _CALLED, "a Python function, as module:function"),
        Key("http", EitherShape(_template, HTTP, told=HTTP.told), "a request"),
        Key(
            "ask", EitherShape(_template, ASK, told=ASK.told), "a question to a person; a text alone asks for approval"
        ),
        Key("flow", TextShape("the path of a flow file"), "another flow, as a run of its own"),
        Key("set", MapShape(_value, "a mapping of variables"), "new values for variables"),
        Key(
            "wait",
            EitherShape(WAIT, TextShape("a duration", "value"), _duration, told=WAIT.told),
            "a time to wait",
        ),
        Key("parallel", _steps, "steps that run side by side"),
        Key("steps", _steps, "steps that run one after the other"),
        Key("with", MapShape(_value, "a mapping of arguments"), "the arguments of `call`, or the variables of `flow`"),
        Key("when", _condition, "the step is skipped if this does not hold"),
        Key(
            "for_each",
            EitherShape(
                ListShape(_value, "a list"), TextShape("a template", "value"), told="a list, or a template of one"
            ),
            "the step is done for each of these, as `item` (and `index`, from 0)",
        ),
        Key("limit", NumberShape(1, 32), "how many of `for_each` or `parallel` run at a time (8)"),
        Key("loop", NumberShape(1, LOOP_MOST), "how many rounds the step has at most (100 if there is an `until`)"),
        Key("until", _condition, "the rounds end when this holds; if it never does, the step fails"),
        Key("delay", _duration, "how long to wait between rounds (0)"),
        Key(
            "retry",
            EitherShape(NumberShape(1, 1000), RETRY, told=RETRY.told),
            "how an action is tried again if it fails; `flow`, `parallel` and `steps` as a whole",
        ),
        Key(
            "timeout",
            _limit,
            "how long an action may take, each time; then it is stopped, and has failed. A `call` is left to itself",
        ),
        Key("undo", EitherShape(_template, UNDO, told=UNDO.told), "what takes the step back in a rollback"),
        Key(
            "on_failure",
            EitherShape(_FAILURE_WORDS, _GOTO, told="abort, skip, retry, rollback, or a mapping with `goto`"),
            "abort: the run fails. skip: it goes on. retry: three more times, then abort. rollback: all is undone, and "
            "the run fails. goto: it goes on with another step",
        ),
        Key(
            "breakpoint",
            EitherShape(_bool, ChoiceShape("before", "after"), told="true, false, before or after"),
            "the run stops here until a person lets it go on (true is before)",
        ),
        Key("env", MapShape(_template, "a mapping of variables"), "environment variables of `run` and its `undo`"),
        Key("cwd", _template, "the folder of `run` and its `undo`, from the folder of the file"),
    ),
    "a step: a mapping with `id` and an action",
    "step",
)
VAR = BlockShape(
    (
        Key("type", ChoiceShape(*TYPES), "what its values are (that of the default, else text)"),
        Key("default", DataShape(), "its value if none is given"),
        Key("required", _bool, "whether a value must be given (true if there is no default)"),
        Key("options", ListShape(DataShape(), "a list", least=1), "the values that it may have"),
        Key("description", _text, "what people should know about it"),
    ),
    "a default, or a mapping",
    "var",
)
SECRET = BlockShape(
    (
        Key("env", TextShape("the name of an environment variable"), "the environment variable that has it"),
        Key("file", TextShape("the path of a file"), "the file that has it, from the folder of the flow"),
    ),
    "nothing, or a mapping with `env` or `file`",
    "secret",
)
ONCE = BlockShape(
    (
        Key("key", _template, "what tells runs apart", required=True),
        Key("ttl", _limit, "for how long a run counts; for ever, if not said"),
    ),
    "a template, or a mapping with `key`",
    "once_per",
)
FLOW = BlockShape(
    (
        Key("name", TextShape("a name: letters, digits, - . and _", pattern=NAME), "the flow's name", required=True),
        Key("description", _text, "what it is for"),
        Key(
            "vars",
            MapShape(EitherShape(VAR, NullShape(), DataShape()), "a mapping of variables"),
            "its variables: a default, a mapping, or nothing (a text that must be given)",
        ),
        Key(
            "secrets",
            EitherShape(
                MapShape(EitherShape(NullShape(), SECRET), "a mapping of secrets"),
                ListShape(TextShape("a name", pattern=ID), "a list of names"),
            ),
            "its secrets: from the environment variable of that name, another one, or a file",
        ),
        Key("env", MapShape(_template, "a mapping of variables"), "environment variables of every `run`"),
        Key("cwd", _template, "the folder of every `run`, from the folder of the file"),
        Key("timeout", _limit, "how long a run may take as a whole"),
        Key("on_failure", ChoiceShape("abort", "rollback"), "what happens if a run fails (abort)"),
        Key("max_steps", NumberShape(1, 1_000_000), "how many steps a run may take, with those of `goto` (1000)"),
        Key(
            "once_per",
            EitherShape(_template, ONCE, told=ONCE.told),
            "a second start with the same key gives the run that there is",
        ),
        Key("steps", _steps, "what is done, one after the other", required=True),
        Key("outputs", MapShape(_value, "a mapping of outputs"), "what the run gives as its result"),
    ),
    "a flow: a mapping with `name` and `steps`",
    "flow",
)
BLOCKS = (FLOW, VAR, SECRET, ONCE, STEP, RETRY, HTTP, ASK, FIELD, WAIT, UNDO)


def schema() -> dict[str, Any]:
    """The JSON Schema of a flow file."""
    return {
        "$schema": SCHEMA_ID,
        "title": "Holdfast flow",
        **FLOW.whole(),
        "$defs": {block.name: block.whole() for block in BLOCKS if block is not FLOW},
    }
