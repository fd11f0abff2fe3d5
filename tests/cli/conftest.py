"""The programs in these folders are data: some need TensorFlow, and all of them train."""

collect_ignore_glob = ["migrate_programs/*", "migrate_wild/*", "record.py"]
