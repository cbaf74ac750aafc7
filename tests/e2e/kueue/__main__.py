"""`python -m tests.e2e.kueue`: build Kueue in advance, so that no scenario waits for it."""

from tests.e2e.kueue import build

if __name__ == "__main__":
    build()
