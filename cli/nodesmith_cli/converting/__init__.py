"""`nodesmith convert`: manifests of every age to v1, as their authors wrote them but for what has to change.

`comments` finds what a YAML text says beside its values, `layout` writes an object with the style and the comments of
the fields that it comes from, `command` does what the options ask. What becomes of fields is decided in the core
(`nodesmith.model.conversion`).
"""
