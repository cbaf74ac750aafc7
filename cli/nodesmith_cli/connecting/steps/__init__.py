"""The steps of connect and disconnect: actions as values, which of them are due, and how they are carried out."""
