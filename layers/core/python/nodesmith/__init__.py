"""nodesmith: nodes for unschedulable pods, at the lowest available price.

Each concern has one entry point. Imports go one way: composition > adapters | controllers > effects > ports >
decisions > model > errors. See docs/architecture.md.

Importing it makes garbage collections rare in the whole process: few objects are in cycles. With Python's default
threshold, collections take a tenth of a function's start, and half of a decision on 10,000 pods.
"""

import gc

__version__ = "0.1.0"
OBJECTS_A_COLLECTION = 50_000

gc.set_threshold(OBJECTS_A_COLLECTION)
