"""Schemas of manifests: one description of each kind, from which both its reader and its CRD are generated.

`fields` defines the building blocks. `nodepools`, `nodeclaims` and `nodeclasses` describe the kinds. `reading` checks a
manifest against a kind. `nodesmith_formats.crds` writes a kind as a CustomResourceDefinition.
"""
