"""The catalogue: its file formats, and current data from AWS."""
