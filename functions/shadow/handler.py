"""On a hint or tick: let the shadows of an observed cluster live on."""

from nodesmith.composition import runtime

handler = runtime.shadow()
