// A vector register of float or double, for each instruction set: no other file of the float kernels knows one.
//
// `pick` may read `Vec<T>::kWindow` elements from its pointer on. Nothing else reads more than its arguments say.
#pragma once

#if defined(__AVX512F__)
#include "polyphase/simd/vector_avx512.h"
#elif defined(__AVX2__)
#include "polyphase/simd/vector_avx2.h"
#else
#include "polyphase/simd/vector_portable.h"
#endif

// Where Vec<float> has what warps in registers need.
#if defined(__AVX2__) || defined(POLYPHASE_NEON)
#define POLYPHASE_WARPS_IN_REGISTERS 1
#endif
