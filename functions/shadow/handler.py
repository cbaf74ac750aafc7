"""On a hint or tick: advance the shadows of an observed cluster."""

from nodesmith.composition import runtime

handler = runtime.shadow()
