"""What a grid's coordinates are computed from: a graph's calls, read as a function of the pixel."""
