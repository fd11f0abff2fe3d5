"""A fresh count of compilations for each test."""

from tests.functions.conftest import forgotten_counts as forgotten_counts
