"""`nodesmith image push`: build the forwarder's image and push it through a registry's API, without a container engine.

`references` parses image names, `dockerfile` the recipe, and `base` the base image. `wheels`, `layers` and `documents`
build the parts. `registry`, `failures`, `credentials` and `ecr` communicate with registries, and `sending` uploads the
missing parts. `pushing` combines all of them in `push_image`, which other commands use too.
"""
