"""What a task file may say, and what is refused with the reason."""

import json

import pytest

from tapstore.errors import FormatError
from tapstore.tasks import taskfile

KEY = "inbox/coder/job.json"


def parse(document, key=KEY):
    return taskfile.parse(json.dumps(document).encode(), key=key)


def test_the_original_example_is_read():
    task = parse(
        {
            "task_id": "code_gen_1",
            "requirement": "请编写一个Python函数",
            "output_artifact_name": "even_square_sum.py",
            "output_path": "artifacts/phase_1/even_square_sum.py",
        }
    )
    assert (task.id, task.requirement) == ("code_gen_1", "请编写一个Python函数")
    assert (task.output_name, task.output_phase) == ("even_square_sum.py", "phase_1")


def test_fields_nobody_knows_are_kept():
    assert parse({"priority": [1, {"a": None}]}).document["priority"] == [1, {"a": None}]


def test_a_task_without_an_id_has_the_name_of_its_file():
    assert parse({"requirement": "x"}).id == "job"


def test_the_name_of_the_result_follows_from_its_path():
    assert parse({"output_path": "artifacts/p/x.py"}).output_name == "x.py"


def test_a_path_elsewhere_names_no_phase():
    assert parse({"output_path": "artifacts/x.py"}).output_phase is None
    assert parse({"output_path": "src/p/x.py"}).output_phase is None


@pytest.mark.parametrize("text", ["1.10", "20240415", "no", "1e3", "0x10", "true"])
def test_ids_are_text_as_they_were_written(text):
    data = f"task_id: {text}\nrequirement: x\n".encode()
    assert taskfile.parse(data, key="inbox/coder/job.yaml").id == text


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "artifacts/../.tap/Tapfile",
        ".tap/Tapfile",
        "inbox/coder/next.json",
        "logs/x.log",
        "artifacts",
        "artifacts/a\0b",
        "artifacts/con",
        "C:\\windows\\x",
        "file:///etc/passwd",
    ],
)
def test_results_stay_where_artifacts_may_lie(path):
    with pytest.raises(FormatError, match=r"^inbox/coder/job\.json: "):
        parse({"output_path": path})


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "x\n", "nul"])
def test_the_name_of_a_result_is_one_portable_segment(name):
    document = {"output_artifact_name": name or " "}
    with pytest.raises(FormatError, match="name"):
        parse(document)


@pytest.mark.parametrize("field", ["task_id", "role", "requirement", "output_path", "session_id"])
def test_known_fields_hold_text(field):
    with pytest.raises(FormatError, match=f"{field} has to be text, not list"):
        parse({field: ["x"]})


def test_null_is_as_good_as_nothing():
    assert parse({"task_id": None, "output_path": None}).id == "job"


@pytest.mark.parametrize("data", [b"[]", b'"x"', b"12", b"", b"   ", b"\xff\xfe", b"{", b'{"a": 1'])
def test_what_is_no_object_is_refused(data):
    with pytest.raises(FormatError, match=r"job\.json"):
        taskfile.parse(data, key=KEY)


def test_yaml_in_a_json_file_is_refused():
    with pytest.raises(FormatError, match="no JSON object"):
        taskfile.parse(b"task_id: x\n", key=KEY)


def test_an_alias_bomb_is_refused():
    lines = ["a0: &a0 [x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 40)}]" for n in range(1, 8)
    ]
    with pytest.raises(FormatError, match="too many values"):
        taskfile.parse("\n".join(lines).encode(), key="inbox/coder/job.yaml")


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("x.json", True),
        ("X.JSON", True),
        ("x.yaml", True),
        ("x.yml", True),
        ("$(touch x); rm -rf .json", True),
        (".x.json", False),
        ("x.json.tmp", False),
        ("x.tmp", False),
        ("x.json~", False),
        ("x.json.part", False),
        ("completed-coder-1.signal", False),
        ("done.flag", False),
    ],
)
def test_only_finished_looking_names_are_read(name, read):
    assert taskfile.is_task_name(name) is read


def test_white_space_makes_no_other_task():
    data = b'{"a": 1, "b": 2}'
    digest = taskfile.parse(data, key=KEY).digest
    assert taskfile.parse(b'\xef\xbb\xbf { "b":2,"a":1 }\r\n\n', key=KEY).digest == digest


def test_another_name_is_another_task():
    assert parse({"a": 1}).digest != parse({"a": 1}, key="inbox/coder/job2.json").digest


def test_a_delivery_is_the_same_wherever_it_lies():
    document = {"a": 1, "tapstore": {"delivery": "d1"}}
    assert parse(document).digest == parse(document, key="inbox/coder/other.json").digest


@pytest.mark.parametrize("own", ["x", {"delivery": 1}, {"delivery": ["d"]}, None])
def test_a_delivery_that_is_no_text_counts_for_nothing(own):
    assert taskfile.delivery({"tapstore": own}) == ""
