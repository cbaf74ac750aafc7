"""The stacks: everything of a region, each cluster that cdk.json names, and notices about the account."""
