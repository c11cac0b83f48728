"""Kernels on NVIDIA GPUs: CUDA C++, built at run time by NVRTC and launched through the driver."""
