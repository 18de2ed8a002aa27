// Reads how many cores and how much memory this process may use. The results are the machine's cores and memory,
// reduced by the scheduler's affinity, by control groups (versions 1 and 2, at every level above the process), and by
// the process's limits of address space and data.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct HostCpu {
  std::string name = "CPU";      // the name in /proc/cpuinfo, or "CPU"
  std::string vector_extension;  // "avx512" or "avx2", or empty if the CPU has neither
  bool has_native_bf16 = false;  // whether the CPU has AVX512_BF16 or AMX
};

struct HostMemory {
  std::int64_t total_bytes = 0;
  std::int64_t available_bytes = 0;  // memory that is free, or used by file caches that can be dropped
  // Whether `ulimit -v` or `-d` is set. These limits also count memory that is mapped but never touched.
  bool mapped_counts = false;
};

// Read the limits of this process from the system's files. `root` is "" for this machine. Tests pass a folder that
// contains proc/ and sys/. A missing or unreadable file sets no limit. Without /proc/meminfo, the memory comes from
// sysinfo(2), which does not count file caches as available. If sysinfo(2) fails too, the result is 0 bytes, and
// allocations fail with that number in their errors.
HostCpu read_host_cpu(const std::string& root = "");
HostMemory read_host_memory(const std::string& root = "");
// Returns the number of cores that this process may use, at least 1. A quota of 1.5 cores counts as 2.
int read_usable_cores(const std::string& root = "");

}  // namespace tessera
