"""`python -m nodesmith_cli` is the command `nodesmith`."""

from nodesmith_cli.main import main

if __name__ == "__main__":
    main()
