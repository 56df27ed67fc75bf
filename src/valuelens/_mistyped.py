"""What a mistyped command line is told: what must hold, what was found, and where to look."""

import re
from typing import Any

from typer.exceptions import TyperException

_SAID: tuple[tuple[str, str, str], ...] = (
    (r"No such command '(?P<name>.*?)'\.?(?P<near>.*)", "a verb must be one of {verbs}", "'{name}'{near}"),
    (
        r"No such option: (?P<name>\S+)(?P<near>.*)",
        "an option must be one of those of {verb}",
        "{name}{near}",
    ),
    (r"Missing argument '(?P<name>.*)'\.?", "{verb} needs {name}", "none"),
    (r"Missing option '(?P<name>.*)'\.?", "{verb} needs {name}", "none"),
    (r"Got unexpected extra argument\(s\) \((?P<name>.*)\)", "{verb} takes no more arguments", "{name} too"),
    (r"Option '(?P<name>.*)' requires an argument\.?", "{name} needs a value", "none"),
    (r"Option '(?P<name>.*)' does not take a value\.?", "{name} takes no value", "one"),
    (
        r"Invalid value for '(?P<name>.*?)': Path '(?P<path>.*)' is not readable\.?",
        "{name} must be readable",
        "that {path} is not",
    ),
    (r"Invalid value for '(?P<name>.*?)': (?P<rule>.*)", "{name} must be {rule}", "{value}"),
)
"""What the parser says, what must hold, and what was found."""

_RULES = (
    (r"Input should be (a valid )?", ""),
    (r", unable to parse string as .*", ""),
    (r"greater than or equal to", "at least"),
    (r"less than or equal to", "at most"),
    (r"^(integer|number|boolean)", r"a \1"),
    (r"^a integer", "an integer"),
)


def mistyped(error: TyperException, verbs: list[str], arguments: list[str]) -> str:
    """A line in the manner of every other error.

    Args:
        error: Of the parser.
        verbs: All there are.
        arguments: Of the command line, without the program.
    """
    verb = next((each for each in arguments if each in verbs), "")
    see = " ".join(["valuelens", *([verb] if verb else []), "--help"])
    text = f"{_plain(error)}{_near(error)}"
    if verb and (early := _before(verb, arguments, text)):
        return f"options of {verb} must stand behind it; found {early} before it; see {see}"
    for pattern, must, found in _SAID:
        if match := re.fullmatch(pattern, text, re.DOTALL):
            parts = {key: value or "" for key, value in match.groupdict().items()}
            known = {"verb": verb or "valuelens", "verbs": ", ".join(verbs), "value": _value(error)}
            known |= {**parts, "near": _asked(parts.get("near", "")), "rule": _rule(parts.get("rule", ""))}
            return f"{must.format(**known)}; found {found.format(**known)}; see {see}"
    return f"the command line must be understood; found {text.rstrip('.')}; see {see}"


def _before(verb: str, arguments: list[str], text: str) -> str:
    """The unknown option, if it was typed before the verb."""
    name = re.match(r"No such option: ([^\s=]+)", text)
    early = [each.partition("=")[0] for each in arguments[: arguments.index(verb)]]
    return name[1] if name and name[1] in early else ""


def _plain(error: TyperException) -> str:
    return error.message if getattr(error, "possibilities", None) else error.format_message()


def _near(error: TyperException) -> str:
    near: Any = getattr(error, "possibilities", None)
    return f" (did you mean {near[0]}?)" if near else ""


def _asked(near: str) -> str:
    """A suggestion in one form: the parser has one for options and one for commands."""
    names = re.findall(r"[Dd]id you mean (?:one of: )?(.*?)\??\)?$", near.strip())
    return f" (did you mean {names[0]}?)".replace("'", "") if names else ""


def _rule(said: str) -> str:
    for pattern, plain in _RULES:
        said = re.sub(pattern, plain, said)
    return said.rstrip(".")


def _value(error: TyperException) -> str:
    """What was typed where a value is at fault, as the check that refused it keeps it."""
    cause: Any = error.__cause__
    try:
        return repr(cause.errors()[0]["input"])
    except (AttributeError, LookupError, TypeError):
        return "another"
