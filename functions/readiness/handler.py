"""NodePools or EC2NodeClasses changed, or a tick says look: resolve them and say whether they are ready."""

from nodesmith import runtime

handler = runtime.readiness()
