"""The torch operators under the functional API: schemas, shapes, derivatives, vmap. Importing this registers them."""

from polyphase.ops import attention, program, resample, warp, whole_calls

__all__ = ["attention", "formulas", "program", "resample", "warp", "whole_calls"]
