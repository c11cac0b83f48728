"""What is asked of a kernel: facts of tensors, and one checked record for every call."""
