"""The torch operators under the functional API: schemas, shapes, derivatives, vmap. Importing this registers them."""

from polyphase.ops import program, resample, warp, whole_calls

__all__ = ["program", "resample", "warp", "whole_calls"]
