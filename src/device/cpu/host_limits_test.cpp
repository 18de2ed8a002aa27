// Catches: limits of the machine, the process or a container that are ignored or misread. Each test names its bug.
#include "tessera/device/cpu/host_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

namespace tessera {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Provides a temporary root folder with proc/ and sys/.
class HostLimits : public testing::Test {
 protected:
  void SetUp() override {
    std::random_device random;
    root_ = std::filesystem::temp_directory_path() / ("host_limits_" + std::to_string(random()));
    write("proc/meminfo", "MemTotal:       4194304 kB\nMemFree:  100 kB\nMemAvailable:   3145728 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string root() const { return root_.string(); }

  std::filesystem::path root_;
};

// Bug caught: a number of kB that is read as a number of bytes, and the field MemFree that is used in place of
// MemAvailable.
TEST_F(HostLimits, PlainMachine) {
  const HostMemory memory = read_host_memory(root());
  EXPECT_EQ(memory.total_bytes, 4096 * kMiB);
  EXPECT_EQ(memory.available_bytes, 3072 * kMiB);
  EXPECT_FALSE(memory.mapped_counts);
  EXPECT_GE(read_usable_cores(root()), 1);
}

// Bug caught: an infinite limit if /proc is not mounted, so that a start asks for 2^63 bytes.
TEST_F(HostLimits, WithoutProc) {
  std::filesystem::remove(root_ / "proc/meminfo");
  const HostMemory memory = read_host_memory(root());
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  EXPECT_EQ(memory.total_bytes, sysconf(_SC_PHYS_PAGES) * page);
  EXPECT_GT(memory.available_bytes, 0);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

// Bug caught: `ulimit -v` or `-d` that is ignored, so that a plan for the machine's whole memory fails at its first
// large allocation.
TEST_F(HostLimits, LimitsOfTheProcess) {
  write("proc/self/status", "Name:\ttest\nVmSize:\t  262144 kB\nVmData:\t  524288 kB\n");
  const std::string head = "Limit                     Soft Limit           Hard Limit           Units     \n";
  write("proc/self/limits", head + "Max data size             unlimited            unlimited            bytes     \n" +
                                "Max address space         2147483648           unlimited            bytes     \n");
  EXPECT_EQ(read_host_memory(root()).total_bytes, 2048 * kMiB);
  EXPECT_EQ(read_host_memory(root()).available_bytes, 1792 * kMiB);
  EXPECT_TRUE(read_host_memory(root()).mapped_counts);
  write("proc/self/limits", head + "Max data size             1073741824           unlimited            bytes     \n" +
                                "Max address space         2147483648           unlimited            bytes     \n");
  EXPECT_EQ(read_host_memory(root()).total_bytes, 1024 * kMiB);
  EXPECT_EQ(read_host_memory(root()).available_bytes, 512 * kMiB);
}

// Bug caught: a container's limit that is ignored, so that allocate() succeeds and the kernel kills the process later;
// or file caches that count as used, so that a server finds no memory after it has read its weights.
TEST_F(HostLimits, Version2AtEveryLevel) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/memory.max", "1073741824\n");
  write("sys/fs/cgroup/outer/memory.current", "536870912\n");
  write("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 104857600\nactive_file 104857600\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/outer/cpu.max", "50000 100000\n");
  const HostMemory memory = read_host_memory(root());
  EXPECT_EQ(memory.total_bytes, 1024 * kMiB);
  EXPECT_EQ(memory.available_bytes, (1024 - 512 + 200) * kMiB);
  EXPECT_EQ(read_usable_cores(root()), 1);
}

// Bug caught: a limit that is searched for only under the group's path on the host. In a container that path does not
// exist, because the group's folder is the mount itself.
TEST_F(HostLimits, Version2InAContainer) {
  write("proc/self/cgroup", "0::/not/visible/here\n");
  write("sys/fs/cgroup/memory.max", "2147483648\n");
  write("sys/fs/cgroup/memory.current", "3147483648\n");
  const HostMemory memory = read_host_memory(root());
  EXPECT_EQ(memory.total_bytes, 2048 * kMiB);
  EXPECT_EQ(memory.available_bytes, 0) << "over the limit is nothing left, not less";
}

// Bug caught: with version 1 of control groups, one of these is read wrongly: the group's name, a line with several
// controllers ("cpu,cpuacct"), or the large number that means "no limit".
TEST_F(HostLimits, Version1) {
  write("proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "209715200\n");
  write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 104857600\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  const HostMemory memory = read_host_memory(root());
  EXPECT_EQ(memory.total_bytes, 1024 * kMiB);
  EXPECT_EQ(memory.available_bytes, 924 * kMiB);
  EXPECT_EQ(read_usable_cores(root()), 1);
}

// Bug caught: a division by a period of zero, or garbage that is read as a limit of zero.
TEST_F(HostLimits, GarbageSetsNoLimit) {
  write("proc/self/cgroup", "nonsense\n0:\n::::\n0::/\n1:cpu:/\n");
  write("sys/fs/cgroup/memory.max", "");
  write("sys/fs/cgroup/cpu.max", "1000 0\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_host_memory(root()).total_bytes, 4096 * kMiB);
  EXPECT_EQ(read_usable_cores(root()), read_usable_cores(root_ / "nothing"));
}

// Bugs caught: a flag that is found inside a longer flag ("avx512_bf16" in "avx512_bf16x"), and a name other than "CPU"
// for a CPU whose name is unknown.
TEST_F(HostLimits, CpuNameAndFlags) {
  EXPECT_EQ(read_host_cpu(root()).name, "CPU");
  write("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2 avx512_bf16x\n\nprocessor\t: 1\n");
  HostCpu cpu = read_host_cpu(root());
  EXPECT_EQ(cpu.name, "Some CPU @ 2 GHz");
  EXPECT_EQ(cpu.vector_extension, "avx2");
  EXPECT_FALSE(cpu.has_native_bf16);
  write("proc/cpuinfo", "model name\t: Other\nflags\t\t: avx2 avx512f avx512_bf16\n");
  cpu = read_host_cpu(root());
  EXPECT_EQ(cpu.vector_extension, "avx512");
  EXPECT_TRUE(cpu.has_native_bf16);
}

// Bug caught: limits that are read correctly from a test's folder but not from this machine's files.
TEST(HostLimitsHere, ThisMachineHasMemory) {
  const HostMemory memory = read_host_memory();
  EXPECT_GT(memory.total_bytes, 64 * kMiB);
  EXPECT_GT(memory.available_bytes, 0);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace tessera
