"""The commands with their options. The code that carries out a command is imported when it runs."""
