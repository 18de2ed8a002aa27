// Measures the algorithms that cuBLASLt offers for linears. The library's first choice is an estimate: for the query,
// key and value projections of 8 192 tokens another algorithm is 6 % faster with Llama-3-8B's sizes and 10 % faster
// with Qwen3-0.6B's (on an H200).
#pragma once

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera {

class Json;

// Imports measurements that another process exported by cublaslt_algorithms(). Later exports of this process include
// them. The choices of this process do not change.
Status learn_cublaslt_algorithms(const Json& algorithms);

// Takes one linear that this process has bound and that no process has measured. Times the algorithms that the library
// offers for it, and keeps the fastest for later processes (linear_algorithms.h). The function takes about 0.1 s at
// most, and allocates memory of its own for that time. If memory or time is short, the linear keeps its algorithm.
// Returns false if no linear is left to measure, and kDeviceLost if the device is lost. Precondition: `device` is a
// CUDA device on which nothing runs and which no other thread uses.
Result<bool> measure_cublaslt_algorithms(Device& device);

}  // namespace tessera
