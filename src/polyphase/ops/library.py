"""The library our torch operators are defined in. They go when it does, so it stays for as long as the process."""

import torch

LIBRARY = torch.library.Library("polyphase", "DEF")
