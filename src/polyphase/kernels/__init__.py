"""How programs run, whatever the device: what every wing (`cpu/`, later `cuda/`) needs, and the way to each of them."""
