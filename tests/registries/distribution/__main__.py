"""`python -m tests.registries.distribution`: build the registry in advance, so that no test waits for it."""

from tests.registries.distribution import build

if __name__ == "__main__":
    build()
