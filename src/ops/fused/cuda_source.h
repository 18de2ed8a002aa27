// Generates the CUDA C++ source of a row kernel. NVRTC compiles the source without any header. The kernel is declared
// as
//
//   extern "C" __global__ void fused_rows(Arguments arguments)
//
// `Arguments` holds the eight-byte words of CudaRowLaunch::arguments. On compute capability 9.0 and newer the kernel
// may be launched early, because it waits for the preceding kernels before it reads anything but weights
// (ops/cuda/cuda_launch.cuh has the rules).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/ops/fused/cuda_schedule.h"

namespace tessera {

inline constexpr const char* kCudaEntry = "fused_rows";

Result<std::string> cuda_source(const RowKernel& kernel);

struct CudaRowLaunch {
  std::int64_t blocks = 0;  // 0: there is nothing to launch
  std::int64_t threads = 0;
  std::vector<std::uint64_t> arguments = {};
};
// Returns the launch for `rows` rows. `addresses` and `operand_rows` have an entry for each operand of the kernel.
// operand_rows[i] is the number of rows of operand i. A row of an operand has as many elements as a row of the value
// that the kernel stores in the operand.
CudaRowLaunch cuda_launch(const RowKernel& kernel, const CudaSchedule& schedule, std::int64_t rows,
                          std::span<const std::uint64_t> addresses, std::span<const std::int64_t> operand_rows);

}  // namespace tessera
