"""Decision records: where they are stored, and each in one line."""
