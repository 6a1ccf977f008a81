import pytest

from tests.docs.documents import ROOT, broken_links, documents


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document):
    assert broken_links(document) == []


def test_a_link_to_a_missing_file_is_found(tmp_path):
    document = tmp_path / "a.md"
    document.write_text("See [the other](b.md) and ![a picture](p.png) and [the web](https://x.y).")
    assert [link.partition(":")[0] for link in broken_links(document)] == ["b.md", "p.png"]


def test_a_link_to_a_missing_heading_is_found(tmp_path):
    document = tmp_path / "a.md"
    document.write_text("# What `it` is, and why\n# Twice\n# Twice\n[x](#what-it-is-and-why) "
                        "[y](#twice-1) [z](a.md#nowhere)")  # fmt: skip
    assert [link.partition(":")[0] for link in broken_links(document)] == ["a.md#nowhere"]


def test_links_in_code_are_no_links(tmp_path):
    document = tmp_path / "a.md"
    document.write_text("`[x](y.md)`\n\n```\n[x](y.md)\n```\n")
    assert broken_links(document) == []
