"""What parts two runs, where the command line's tests do not show it."""

import pytest

from jobs.launching.compare import changed_files


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("diff --git a/train.py b/train.py", "train.py"),
        ("diff --git a/src/a model.py b/src/a model.py", "src/a model.py"),
        (
            r'diff --git "a/gr\303\266\303\237e.py" "b/gr\303\266\303\237e.py"',
            r"gr\303\266\303\237e.py",
        ),
        ("diff --git train.py train.py", "train.py"),  # diff.noprefix
        ("diff --git i/train.py w/train.py", "train.py"),  # diff.mnemonicPrefix
        ("diff --git a/old.py b/new.py", "new.py"),
    ],
)
def test_changed_files_are_named_as_they_are_now(header, name):
    assert changed_files(f"{header}\nindex 1..2\n@@ -1 +1 @@\n-diff --git a/x b/x\n") == (name,)


def test_no_diff_changes_no_file():
    assert changed_files("") == ()
