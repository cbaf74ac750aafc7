"""DynamoDB: one table, a partition for each cluster and kind of item."""
