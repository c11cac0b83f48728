"""torch.compile(backend="polyphase"), and accelerate(): code that is already written, on our kernels."""
