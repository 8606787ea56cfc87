"""The documents, and the commands that print what they quote."""
