"""The catalogue: files of it, and what AWS says today."""
