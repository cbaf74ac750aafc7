"""What users are told: Events on objects, and notifications on EventBridge."""
