"""`polyphase.explain`: what was fused, what was not, and why; with our backend and with plain Inductor alike."""
