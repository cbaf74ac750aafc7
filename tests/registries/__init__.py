"""What `nodesmith image push` is tested against: a strict registry in this process, the CNCF's own, bases, wheels."""
