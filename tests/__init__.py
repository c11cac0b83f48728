"""Read before PyTorch. Its threads sleep while they wait: by default they spin, which is half of what tests of small
images would cost and takes the cores from other workers. Inductor compiles in this process: tests give it one kernel at
a time, for which it would start a pool of processes."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
