// The macro that compiles a function of the CPU once for each instruction set.
#pragma once

// Compiles a function for AVX-512, AVX2 and the baseline; the loader picks one. Vector loops must stand in the function
// itself or in TESSERA_INLINE functions, because the body of a lambda is not cloned. Two cases are compiled only once,
// for the build's own instruction set: sanitizers, which start after the loader's choice, and compilers other than g++
// on x86-64, which cannot clone templates.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TESSERA_CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TESSERA_CPU_CLONES
#endif
