"""What is computed, as plain data: filters, axis maps and their taps, warps, pointwise expressions, programs.

Nothing here knows how or where it runs. Everything fast is held against `reference`.
"""
