// Measures the algorithms that cuBLASLt offers for linears. Its first choice is an estimate: for the queries, keys and
// values of 8 192 tokens another one is 6 % faster with Llama-3-8B's sizes and 10 % with Qwen3-0.6B's (an H200).
#pragma once

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera {

// Times the algorithms offered for one linear that this process has bound and nobody has measured, and keeps the
// fastest for later processes (linear_algorithms.h). Takes up to about 120 ms on an H200, and memory of its own for as
// long; where there is too little of that, the linear keeps its algorithm. False where none is left. `device` is a CUDA
// device on which nothing runs; the caller's is the only thread that uses it.
Result<bool> measure_cublaslt_algorithms(Device& device);

}  // namespace tessera
