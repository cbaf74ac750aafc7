"""AWS's refusals for moto: requests are checked against botocore's service models and AWS's documented limits.

`servicelimits` is the table of limits. `models` checks a request against the service model, `filternames` against the
documented filters; `ec2limits`, `dynamodblimits` and `sqslimits` enforce the table. `ec2buckets` limits the rate of
calls, `visibility` imitates eventual consistency, `protection` spares protected instances, and `reservations` adds
DescribeCapacityReservations. `answers` changes answers on demand, and `gate` puts everything in front of moto.
"""

from nodesmith_local.aws.strict.requestchecks import StrictAws

__all__ = ["StrictAws"]
