"""`python -m tests.registries.distribution`: build it, so that no test has to wait for that."""

from tests.registries.distribution import build

if __name__ == "__main__":
    build()
