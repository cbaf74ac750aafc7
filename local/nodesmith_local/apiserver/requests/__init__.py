"""The API server's HTTP interface: paths, verbs, options, pages, watches, discovery, and encodings."""
