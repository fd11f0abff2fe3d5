"""Tests of distributed data sets."""
