"""Manifests and the plan as an audit reads them: values, without any judgement."""
