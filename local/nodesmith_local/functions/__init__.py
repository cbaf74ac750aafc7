"""The functions' runtime: the deployed handlers in this process, invoked as Lambda, SQS and schedules invoke them."""
