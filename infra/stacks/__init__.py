"""The stacks: everything of a region, and each cluster that cdk.json names."""
