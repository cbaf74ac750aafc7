"""What a manifest may say: one description of each kind, from which both its reader and its CRD are made.

`fields` is the vocabulary, `nodepools`, `nodeclaims` and `nodeclasses` are the kinds, `reading` checks a manifest
against one, and `crds` writes one as a CustomResourceDefinition.
"""
