"""The output of all commands: text, tables, progress, JSON documents and HTML reports."""
