"""`polyphase.explain`: what was fused, what was not, and why; for our backend and for plain Inductor alike."""
