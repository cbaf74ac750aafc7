"""Reports to users: Events on objects, and notifications on EventBridge."""
