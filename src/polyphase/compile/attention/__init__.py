"""Attention at sampled places, as models write it in plain PyTorch, found in Dynamo's graph."""
