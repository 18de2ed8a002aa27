// Measures the algorithms that cuBLASLt offers for linears. Its first choice is an estimate: for the queries, keys and
// values of 8 192 tokens another one is 6 % faster with Llama-3-8B's sizes and 10 % with Qwen3-0.6B's (an H200).
#pragma once

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera {

class Json;

// What other processes have measured, of cublaslt_algorithms(), goes into later ones; choices of this process stay.
Status learn_cublaslt_algorithms(const Json& algorithms);

// Times the algorithms offered for one linear that this process has bound and nobody has measured, and keeps the
// fastest for later processes (linear_algorithms.h). Takes some 0.1 s at most, and memory of its own for as long; where
// there is too little of either, the linear keeps its algorithm. False where none is left; kDeviceLost where the device
// is. `device` is a CUDA device on which nothing runs; the caller's is the only thread that uses it.
Result<bool> measure_cublaslt_algorithms(Device& device);

}  // namespace tessera
