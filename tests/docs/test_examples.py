from pathlib import Path

import pytest

from tests.docs.console import run
from tests.docs.documents import ROOT, documents, examples

RUNNABLE = [document for document in documents() if examples(document)]


@pytest.mark.parametrize("document", RUNNABLE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_marked_examples_do_what_they_show(document, tmp_path):
    assert run(examples(document), tmp_path) == []


def problems(tmp_path: Path, text: str) -> list[str]:
    document = tmp_path / "document.md"
    document.write_text(text)
    return run(examples(document), tmp_path)


def test_shown_output_that_differs_is_a_problem(tmp_path):
    (problem,) = problems(tmp_path, "```console run\n$ echo yes\nno\n```\n")
    assert "printed:\nyes\ninstead of:\nno" in problem


def test_dots_stand_for_anything(tmp_path):
    assert problems(tmp_path, "```console run\n$ echo a b; echo c\na ...\n```\n") == []


def test_a_failing_command_is_a_problem(tmp_path):
    (problem,) = problems(tmp_path, "```console run\n$ (exit 3)\n$ true\n```\n")
    assert "line 2: `(exit 3)` exited with 3" in problem


def test_a_failing_command_is_fine_when_its_status_is_shown(tmp_path):
    assert problems(tmp_path, "```console run\n$ (exit 3)\n$ echo $?\n3\n```\n") == []


def test_commands_after_an_early_end_are_problems(tmp_path):
    assert len(problems(tmp_path, "```console run\n$ exit\n$ true\n```\n")) == 2


def test_blocks_of_a_document_share_folder_and_shell(tmp_path):
    text = """```console run
$ export NAME=value; mkdir sub
$ cat > sub/program.py <<'END'
> print("from a file")
> END
```
```python run
import os
assert os.environ["NAME"] == "value" and os.path.isfile("sub/program.py")
```
```console run
$ cd sub; python program.py
from a file
```
"""
    assert problems(tmp_path, text) == []


def test_a_block_that_is_a_file_is_saved_as_it_is(tmp_path):
    text = "```python file sub/its.py\nprint('$HOME')\n```\n"
    assert problems(tmp_path, text + "```console run\n$ python sub/its.py\n$HOME\n```\n") == []
    assert (tmp_path / "sub" / "its.py").read_bytes() == b"print('$HOME')\n"


def test_a_python_block_that_raises_is_a_problem(tmp_path):
    (problem,) = problems(tmp_path, "```python run\nassert 1 == 2\n```\n")
    assert "AssertionError" in problem


def test_unmarked_blocks_are_not_run(tmp_path):
    assert problems(tmp_path, "```console\n$ touch made\n```\n") == []
    assert not (tmp_path / "made").exists()


def test_a_mark_that_means_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="only `python run` and `console run`"):
        problems(tmp_path, "```python runs\n```\n")
