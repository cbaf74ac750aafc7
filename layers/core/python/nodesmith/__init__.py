"""nodesmith: nodes for pods that cannot be placed, at the lowest price there is.

A door per concern, and imports go one way: runtime > adapters | controllers > effects > ports > decisions > model >
errors. docs/architecture.md is the map.
"""

__version__ = "0.1.0"
