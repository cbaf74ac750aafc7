"""The context of cdk.json: what it may contain, with defaults, and faults in it."""
