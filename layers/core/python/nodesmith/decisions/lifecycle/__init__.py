"""The next step of each claim on its way to a node that accepts pods, and the reason why it waits."""

from nodesmith.decisions.lifecycle.registrations import registrations, uses
from nodesmith.decisions.lifecycle.stages import event_of, initialization_patch, registration_patch
from nodesmith.decisions.lifecycle.steps import is_held, next_steps, to_check, to_name
from nodesmith.decisions.lifecycle.warmcapacity import preparing_patch

__all__ = [
    "event_of",
    "initialization_patch",
    "is_held",
    "next_steps",
    "preparing_patch",
    "registration_patch",
    "registrations",
    "to_check",
    "to_name",
    "uses",
]
