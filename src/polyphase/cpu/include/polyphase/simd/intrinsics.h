// The vector instructions of the CPU this is compiled for.
//
// GCC's header for them is a good part of a kernel's compile time, and more than half of it is what no kernel uses: 16 bit
// floats as such, masks of shorter registers, the rarer extensions, what is no vector, and all of AVX-512 where there is
// none. Such headers are marked as included already, and so are not read; a compiler that marks them differently reads them.
// Only up to GCC 13: later versions have more that depends on these.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ <= 13
#define _X86GPRINTRIN_H_INCLUDED
#define __AVX512FP16INTRIN_H_INCLUDED
#define __AVX512FP16VLINTRIN_H_INCLUDED
#define _AVX512VLINTRIN_H_INCLUDED
#define _AVX512VLBWINTRIN_H_INCLUDED
#define _AVX512DQINTRIN_H_INCLUDED
#define _AVX512VLDQINTRIN_H_INCLUDED
#define _AVX512VBMI2VLINTRIN_H_INCLUDED
#define _AVX512BF16INTRIN_H_INCLUDED
#define _AVX512BF16VLINTRIN_H_INCLUDED
#define _AVX512VBMIVLINTRIN_H_INCLUDED
#define _AVX512VNNIVLINTRIN_H_INCLUDED
#define __AVX512VBMI2INTRIN_H_INCLUDED
#define _AVX512BITALGINTRIN_H_INCLUDED
#define _AVX512CDINTRIN_H_INCLUDED
#define _AVX512ERINTRIN_H_INCLUDED
#define _AVX512PFINTRIN_H_INCLUDED
#define _AVX512IFMAINTRIN_H_INCLUDED
#define _AVX512IFMAVLINTRIN_H_INCLUDED
#define _AVX5124FMAPSINTRIN_H_INCLUDED
#define _AVX5124VNNIWINTRIN_H_INCLUDED
#define _GFNIINTRIN_H_INCLUDED
#define _AVXNECONVERTINTRIN_H_INCLUDED
#if defined(__AVX512F__)
using __mmask32 = unsigned int;  // declared by one that is not read, and needed by others
#else
#define _AVX512FINTRIN_H_INCLUDED
#define _AVX512BWINTRIN_H_INCLUDED
#define _AVX512VBMIINTRIN_H_INCLUDED
#define __AVX512VNNIINTRIN_H_INCLUDED
#define _AVX512VPOPCNTDQINTRIN_H_INCLUDED
#define _AVX512VPOPCNTDQVLINTRIN_H_INCLUDED
#define _AVX512VP2INTERSECTINTRIN_H_INCLUDED
#define _AVX512VP2INTERSECTVLINTRIN_H_INCLUDED
#define _VPCLMULQDQINTRIN_H_INCLUDED
#define __VAESINTRIN_H_INCLUDED
#endif
#endif

#include <immintrin.h>
