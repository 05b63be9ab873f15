"""Opening trace files: forms, compression, and complaints that name the line."""

import json
import lzma

import pytest

from simulator.traces import TraceError, read_sessions
from simulator.traces.reader import TraceForm, detect_form

CALL = {"timestamp": 1, "input": "hello", "output": "world", "session_id": "a"}


def write(path, *records):
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("record", "form"),
    [
        ({"id": "s", "block_size": 64, "requests": []}, TraceForm.WEKA),
        (CALL, TraceForm.LMCACHE),
        ({"task_id": 0, "traj": []}, TraceForm.TAUBENCH),
    ],
)
def test_the_form_is_told_from_the_first_line(tmp_path, record, form):
    assert detect_form(write(tmp_path / "t.jsonl", record)) is form


def test_a_compressed_file_gives_the_same_sessions_as_a_plain_one(tmp_path):
    plain = list(read_sessions(write(tmp_path / "t.jsonl", CALL)))
    packed = list(read_sessions(write(tmp_path / "t.jsonl.xz", CALL)))
    assert plain == packed
    assert len(plain) == 1


def test_an_unknown_form_is_refused_with_the_forms_that_are_known(tmp_path):
    with pytest.raises(TraceError, match=r"line 1: unknown form; expected .*weka.*lmcache.*tau-bench"):
        list(read_sessions(write(tmp_path / "t.jsonl", {"prompt": "x"})))


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(TraceError, match="the file is empty"):
        list(read_sessions(write(tmp_path / "t.jsonl")))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        list(read_sessions(tmp_path / "none.jsonl"))


def test_a_file_that_is_no_xz_is_refused(tmp_path):
    path = tmp_path / "t.jsonl.xz"
    path.write_bytes(b"not compressed at all")
    with pytest.raises(TraceError, match="cannot be read"):
        list(read_sessions(path))


def test_a_truncated_xz_is_refused_after_its_whole_lines(tmp_path):
    path = write(tmp_path / "t.jsonl.xz", *[{**CALL, "session_id": str(n)} for n in range(2_000)])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TraceError, match="cannot be read"):
        list(read_sessions(path))


@pytest.mark.parametrize("bad", ["{", "[1]", '{"timestamp": 1}', '{"timestamp": "x", "input": 1}', "\udcff"])
def test_a_bad_line_is_named_with_what_was_expected(tmp_path, bad):
    path = write(tmp_path / "t.jsonl", CALL)
    path.write_bytes(path.read_bytes() + bad.encode(errors="surrogateescape") + b"\n")
    with pytest.raises(TraceError, match=r"line 2: .*expected an LMCache agent call: timestamp") as caught:
        list(read_sessions(path))
    assert caught.value.line_number == 2


def test_empty_lines_are_passed_over_and_still_counted(tmp_path):
    path = write(tmp_path / "t.jsonl", CALL)
    path.write_bytes(path.read_bytes() + b"\n\n{\n")
    with pytest.raises(TraceError, match="line 4"):
        list(read_sessions(path))


def test_a_line_over_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("simulator.traces.lines.MAX_LINE_BYTES", 100)
    path = write(tmp_path / "t.jsonl", {**CALL, "input": "x" * 200})
    with pytest.raises(TraceError, match="longer than 100 bytes"):
        list(read_sessions(path))
