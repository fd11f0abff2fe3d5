"""The programs in `migrate_programs/` are data: some need TensorFlow, and all of them train."""

collect_ignore_glob = ["migrate_programs/*", "record.py"]
