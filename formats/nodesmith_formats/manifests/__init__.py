"""Manifests in files: documents with the lines of their fields, and the region and cluster that they name."""
