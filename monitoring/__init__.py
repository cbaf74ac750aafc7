"""Dashboards and alerts: `python -m monitoring` writes the files in this folder from the descriptions in these modules.

`alerts` are Prometheus' rules, each with the series that fire it and those that do not. `dashboards` and `cloudwatch`
are Grafana's dashboards, of which `panels` knows the JSON. docs/monitoring.md says how to use the files, and
docs/runbooks.md what to do about each alert.
"""
