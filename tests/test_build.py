"""What is done when replicax is built: README for the package index."""

import re
from pathlib import Path

from hatch_build import readme_for_index

README = (Path(__file__).parent.parent / "README.md").read_text()
RELATIVE = re.compile(r"\]\((?!https?:|#)")


def test_links_are_relative_to_the_repository():
    text = "See [Start](docs/start.md#x), [JAX](https://jax.dev) and [below](#below)."
    assert readme_for_index(text, "https://a.b/c/") == (
        "See [Start](https://a.b/c/docs/start.md#x), [JAX](https://jax.dev) and [below](#below)."
    )


def test_without_an_address_no_link_is_dead():
    text = readme_for_index(README, "")
    assert RELATIVE.search(README) and not RELATIVE.search(text)
    assert "name by name" in text.lower()


def test_commands_of_pip_are_those_of_the_index():
    text = readme_for_index(README, "")
    assert "`pip install replicax`" in text and 'pip install "replicax[cuda12]"' in text
    assert "pip install ." in README and not re.search(r'pip install "?\.', text)
