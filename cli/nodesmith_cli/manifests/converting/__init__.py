"""`nodesmith convert`: manifests of every API version to v1, changing only what has to change.

`comments` finds the comments of a YAML text, `layout` writes an object with the style and the comments of the fields
that it comes from, and `command` implements the command. The conversion itself is in the core
(`nodesmith.model.karpenter.conversion`).
"""
