"""`python -m polyphase`."""

from polyphase.cli import app

app(prog_name="polyphase")
