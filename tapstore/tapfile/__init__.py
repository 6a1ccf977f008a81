"""The Tapfile: its state as a value, the rules that change it, and its form as a file."""
