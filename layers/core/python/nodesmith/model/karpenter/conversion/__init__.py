"""Conversion of manifests of all API versions to karpenter.sh/v1, for objects from files and from clusters alike.

`converting` takes whole sets of objects, since one current object may be made from two old ones. `nodepools` and
`nodeclasses` have a table of the fields of each old kind. `labels` has old and mistaken label keys and values, and
applies them to requirements and workloads. The conversion moves fields and reports each move; values are validated when
v1 is read. Nothing raises, whatever the JSON or YAML, and an object that needs no conversion is returned unchanged.
"""
