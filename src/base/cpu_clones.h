// The macro that compiles a CPU function once for each instruction set.
#pragma once

// The macro stands before a function. The compiler then compiles the function three times: for AVX-512, AVX2 and the
// baseline. The dynamic loader picks one of the versions at run time. Vector loops must be in the function itself or in
// TESSERA_INLINE functions, because the body of a lambda is not cloned. In two cases the function is compiled only
// once, for the build's own instruction set. The first is a build with a sanitizer, because the loader's choice would
// run instrumented code before the sanitizer has started. The second is a build for a machine other than x86-64, or
// with a compiler other than g++. Other compilers cannot clone templates.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TESSERA_CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TESSERA_CPU_CLONES
#endif
