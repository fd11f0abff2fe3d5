"""What workers run in the tests of faults, and what they leave behind for the tests to judge."""
