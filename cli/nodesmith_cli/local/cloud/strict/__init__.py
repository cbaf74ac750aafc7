"""AWS's refusals for moto: requests are held against botocore's service models and AWS's documented limits.

`servicelimits` is the table of limits, `models` checks a request against the service model, `filternames` against the
documented filters, `ec2limits`, `fleetlimits`, `dynamodblimits`, `sqslimits` and `otherlimits` enforce the table,
`ec2buckets` limits the rate of calls, `answers` changes answers on demand, `gate` puts all of it in front of moto.
"""

from nodesmith_cli.local.cloud.strict.gate import StrictAws

__all__ = ["StrictAws"]
