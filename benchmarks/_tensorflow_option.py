"""Which interpreter has TensorFlow: an option of the benchmarks that compare with it."""

import argparse
import importlib.util
import sys


def add_tensorflow_options(parser: argparse.ArgumentParser, needed: str = "TensorFlow") -> None:
    parser.add_argument(
        "--tensorflow-python",
        metavar="PATH",
        help=f"an interpreter that has {needed} (default: this one, if it has)",
    )
    parser.add_argument("--no-tensorflow", action="store_true")


def choose_tensorflow(options: argparse.Namespace) -> None:
    """Settles `options.tensorflow_python`: None if TensorFlow takes no part."""
    if options.no_tensorflow:
        options.tensorflow_python = None
    elif options.tensorflow_python is None and importlib.util.find_spec("tensorflow"):
        options.tensorflow_python = sys.executable
