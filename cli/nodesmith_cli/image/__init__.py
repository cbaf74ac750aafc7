"""`nodesmith image push`: the forwarder's image, built and pushed through a registry's API, without a container engine.

`references` reads names, `dockerfile` says what the image is, `base` reads what it stands on, `wheels`, `layers` and
`documents` make its parts, `registry` and `credentials` speak to registries, `pushing` puts it all together.
"""
