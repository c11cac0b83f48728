"""Chains of image transforms, as torchvision has them, as one program per image, with nothing to trace or compile."""
