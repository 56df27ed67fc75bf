"""An entry of the cache is read back to the last bit, or known to be corrupt."""

import json
import math
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from valuelens.analyses.impact._entries import CorruptEntryError, canonical, digest, keep, kept, parsed
from valuelens.models import InputError

KEY = {"sha256": "ab", "question": "score", "how": {"beta": 5.0}, "valuelens": "0.1.0"}
ANSWER = {
    "signal": 0.1 + 0.2,
    "curve": [math.nan, -math.inf, -0.0, 5e-324],
    "seconds": 1.5,
    "seconds_rl": [2.0],
}

data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4).filter(lambda found: set(found) != {"float"})
    ),
)


def bits(value):
    """Floats by their bits, so that -0.0 is not 0.0 and NaN is NaN."""
    match value:
        case float():
            return "float", struct.pack("d", math.nan if math.isnan(value) else value)
        case list():
            return [bits(each) for each in value]
        case dict():
            return {name: bits(each) for name, each in value.items()}
    return type(value), value


@settings(max_examples=50)
@given(data)
@example([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308, 2**70, 0.1])
@example({"float": 1, "b": {"a": {"float2": "nan"}}})
def test_data_is_read_back_to_the_last_bit(value):
    text = canonical(value)
    assert bits(parsed(text)) == bits(value)
    json.loads(text, parse_constant=pytest.fail)  # no NaN, which is no JSON
    assert canonical(parsed(text)) == text


def test_the_order_of_keys_says_nothing():
    assert digest({"a": 1, "b": (2, 3)}) == digest({"b": [2, 3], "a": 1})
    assert digest({"a": 1}) != digest({"a": 1.0})


@pytest.mark.parametrize("value", [{1: 2}, {"float": "nan"}, {"a": [{2}]}, {"a": 1j}, b"x"])
def test_other_data_is_refused(value):
    with pytest.raises(TypeError, match=r"an answer must be of dicts with text keys .*; found "):
        canonical(value)


def test_an_answer_is_kept_with_its_provenance_apart(tmp_path):
    path, later = tmp_path / "cache" / "a.json", tmp_path / "b.json"
    keep(path, KEY, ANSWER)
    assert bits(kept(path, KEY)) == bits(ANSWER)
    assert list(kept(path, KEY)) == sorted(ANSWER)
    keep(later, KEY, {**ANSWER, "seconds": 99.0, "seconds_rl": []})
    first, second = (json.loads(file.read_text()) for file in (path, later))
    assert first != second
    assert {**first, "provenance": None} == {**second, "provenance": None}
    assert set(first["payload"]) == {"signal", "curve"}
    assert kept(tmp_path / "none.json", KEY) is None


def test_a_flipped_bit_and_a_cut_are_found_or_harmless(tmp_path):
    path = tmp_path / "a.json"
    keep(path, KEY, ANSWER)
    whole = path.read_bytes()
    damaged = [whole[:cut] for cut in range(0, len(whole) - 1, 5)]
    for place in range(0, len(whole) - 1, 2):  # behind the brace there is a newline
        damaged.append(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
    found = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            assert bits(kept(path, KEY)) == bits(ANSWER)  # such as an exponent's E
        except CorruptEntryError:
            found += 1
    assert found > len(damaged) - 10


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "it cannot be read: JSONDecodeError"),
        (b"\xff\xfe", "it cannot be read: .*DecodeError"),
        (b"[]", "it cannot be read: TypeError"),
        (b"{}", "it cannot be read: KeyError"),
        (b"[" * 200_000, "it cannot be read: RecursionError"),
    ],
)
def test_what_is_no_entry_is_corrupt(tmp_path, content, told):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(CorruptEntryError, match=told):
        kept(tmp_path / "a.json", KEY)
    (tmp_path / "folder").mkdir()
    with pytest.raises(CorruptEntryError, match="it cannot be read: IsADirectoryError"):
        kept(tmp_path / "folder", KEY)


def test_an_entry_under_another_name_is_corrupt(tmp_path):
    keep(tmp_path / "a.json", KEY, ANSWER)
    with pytest.raises(CorruptEntryError, match="it answers another question"):
        kept(tmp_path / "a.json", {**KEY, "question": "gain"})
    changed = json.loads((tmp_path / "a.json").read_text())
    changed["payload"]["signal"] = 0.3
    (tmp_path / "a.json").write_text(json.dumps(changed))
    with pytest.raises(CorruptEntryError, match="its sha256 is another one"):
        kept(tmp_path / "a.json", KEY)


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="the output must be writable"):
        keep(tmp_path / "file" / "a.json", KEY, ANSWER)
