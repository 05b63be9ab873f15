"""The file in which an operator declares a model's cache groups."""

import pytest

from engine_shim.sidecar.layout_file import read_layout


def test_a_list_of_groups_is_a_layout(tmp_path):
    (tmp_path / "groups.json").write_text(
        '[{"kind": "full_attention", "bytes_per_token": 64}, {"kind": "sliding_window", "window_tokens": 8}]'
    )
    layout = read_layout(tmp_path / "groups.json")
    assert [(group.kind, group.window_tokens) for group in layout.groups] == [
        ("full_attention", None),
        ("sliding_window", 8),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON list"),
        ("\xff", "no JSON list"),
        ("[]", "no group"),
        ('[{"kind": "sliding_window"}]', "with window_tokens"),
        ('[{"kind": "other"}]', "'other'"),
        ('[{"window_tokens": 1}]', "kind"),
    ],
)
def test_what_cannot_be_used_is_said_in_words(tmp_path, text, words):
    (tmp_path / "groups.json").write_bytes(text.encode("latin-1"))
    assert words in read_layout(tmp_path / "groups.json")


def test_a_file_that_is_not_there_is_said(tmp_path):
    assert "No such file" in read_layout(tmp_path / "absent")
