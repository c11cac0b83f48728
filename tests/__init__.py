"""Read before PyTorch. Its threads sleep while they wait: by default they spin, which is half of what tests of small
images would cost and takes the cores from other workers. Inductor compiles in this process: tests give it one kernel at
a time, for which it would start a pool of processes; and it takes the CPU's word for its instructions, which it would
try in every process with a library and an interpreter for each set."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
