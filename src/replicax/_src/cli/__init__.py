"""The command line, `replicax launch`, `doctor`, `migrate`, `convert` and `plan`; and `rx.launch`.

Nothing is imported here: `main.py` is for who runs a command, which does not always need JAX, and
`launch_function.py` for `import replicax`, which does not need the commands. The engine of both is
`Launch(LaunchOptions(("train.py",), workers=Range(2, 2))).run()`.
"""
