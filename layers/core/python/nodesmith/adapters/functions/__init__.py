"""Lambda and SQS: functions are invoked, at once or after a while."""
