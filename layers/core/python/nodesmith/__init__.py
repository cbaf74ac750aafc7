"""nodesmith: nodes for unschedulable pods, at the lowest available price.

Each concern has one entry point. Imports go one way: runtime > adapters | controllers > effects > ports > decisions >
model > errors. See docs/architecture.md.
"""

__version__ = "0.1.0"
