"""Strategies and settings for programs that were written for TensorFlow 1."""
