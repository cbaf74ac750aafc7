"""`nodesmith image push`: the forwarder's image, built and pushed through a registry's API, without a container engine.

`references` reads names, `dockerfile` says what the image is, `base` reads what it stands on, `wheels`, `layers` and
`documents` make its parts, `registry`, `failures`, `credentials` and `ecr` speak to registries, `sending` sends what
one lacks, `pushing` puts it all together: `push_image` is for other commands too.
"""
