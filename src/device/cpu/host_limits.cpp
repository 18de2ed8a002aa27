#include "tessera/device/cpu/host_limits.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::int64_t> to_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// Returns the number in a file of one line. Returns nothing if the line is "max" or the file is missing.
std::optional<std::int64_t> read_int(const std::string& path) {
  const std::optional<std::string> line = read_line(path);
  return line ? to_int(*line) : std::nullopt;
}

// Returns the number after `key` in a file of lines "<key> <number> …".
std::optional<std::int64_t> read_field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name && name == key && words >> value) return value;
  }
  return std::nullopt;
}

// The folders of the control groups that limit this process for one controller. They are the folder of the process's
// own group and the folders of all groups above it. Version 2 (`version2`) has one hierarchy for all controllers.
// Version 1 has one hierarchy for each controller.
struct Hierarchy {
  bool version2 = false;
  std::vector<std::string> folders;
};

void add_levels(const std::string& mount, std::string path, std::vector<std::string>& folders) {
  while (path.size() > 1) {
    folders.push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  folders.push_back(mount);
}

std::vector<Hierarchy> read_hierarchies(const std::string& root, std::string_view controller) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::vector<Hierarchy> found;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;  // "<number>:<controllers>:<path>"; without controllers in version 2
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size() || line[second + 1] != '/') continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    Hierarchy hierarchy;
    if (controllers == ",,") {
      hierarchy.version2 = true;
      add_levels(mount, path, hierarchy.folders);
      add_levels(mount + "/unified", path, hierarchy.folders);
    } else if (controllers.find("," + std::string(controller) + ",") != std::string::npos) {
      add_levels(mount + "/" + std::string(controller), path, hierarchy.folders);
    } else {
      continue;
    }
    found.push_back(std::move(hierarchy));
  }
  return found;
}

// Lowers `memory` to the limit of one control group. The group's used memory includes file caches. These caches are
// subtracted, because the system can drop them.
void apply_memory_limit(const std::string& folder, bool version2, HostMemory& memory) {
  const std::optional<std::int64_t> limit = read_int(folder + (version2 ? "/memory.max" : "/memory.limit_in_bytes"));
  if (!limit) return;
  memory.total_bytes = std::min(memory.total_bytes, *limit);
  const std::optional<std::int64_t> used = read_int(folder + (version2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!used) return;
  const std::string statistics = folder + "/memory.stat";
  const std::string prefix = version2 ? "" : "total_";
  const std::int64_t caches = read_field(statistics, prefix + "inactive_file").value_or(0) +
                              read_field(statistics, prefix + "active_file").value_or(0);
  memory.available_bytes = std::min(memory.available_bytes, *limit - std::max<std::int64_t>(*used - caches, 0));
}

// Returns the soft limit in a line of /proc/self/limits:
//   "Max address space         1073741824           unlimited            bytes"
std::optional<std::int64_t> read_process_limit(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(name)) continue;
    const std::size_t begin = line.find_first_not_of(' ', name.size());
    return begin == std::string::npos ? std::nullopt : to_int(std::string_view(line).substr(begin));
  }
  return std::nullopt;
}

// Lowers `memory` to the limits of `ulimit -v` and `-d`. Both limits count mapped memory, even if it was never touched.
void apply_process_limits(const std::string& root, HostMemory& memory) {
  struct Limit {
    std::string_view name;
    std::string_view used;  // the key in /proc/self/status
  };
  for (const Limit& limit : {Limit{"Max address space ", "VmSize:"}, Limit{"Max data size ", "VmData:"}}) {
    const std::optional<std::int64_t> most = read_process_limit(root + "/proc/self/limits", limit.name);
    if (!most) continue;
    const std::int64_t used = 1024 * read_field(root + "/proc/self/status", limit.used).value_or(0);
    memory.total_bytes = std::min(memory.total_bytes, *most);
    memory.available_bytes = std::min(memory.available_bytes, *most - used);
    memory.mapped_counts = true;
  }
}

// Returns the CPU quota of one control group in cores, rounded up.
std::int64_t read_core_quota(const std::string& folder, bool version2) {
  std::optional<std::int64_t> quota;
  std::optional<std::int64_t> period;
  if (version2) {
    const std::string line = read_line(folder + "/cpu.max").value_or("max");  // "<quota or max> <period>"
    const std::size_t space = line.find(' ');
    quota = to_int(line);
    if (space != std::string::npos) period = to_int(std::string_view(line).substr(space + 1));
  } else {
    quota = read_int(folder + "/cpu.cfs_quota_us");
    period = read_int(folder + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return kNoLimit;
  return (*quota + *period - 1) / *period;
}

std::int64_t cores_by_affinity() {
  std::array<cpu_set_t, 16> set{};  // room for 16384 cores
  if (sched_getaffinity(0, sizeof(set), set.data()) != 0) return 1;
  return CPU_COUNT_S(sizeof(set), set.data());
}

// Reads the machine's memory through sysinfo(2), for systems where /proc is not mounted. The result counts file caches
// as used, because the kernel does not say how much of them it could drop.
HostMemory memory_by_kernel() {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return {};
  const auto unit = static_cast<std::int64_t>(info.mem_unit);
  return {.total_bytes = static_cast<std::int64_t>(info.totalram) * unit,
          .available_bytes = static_cast<std::int64_t>(info.freeram + info.bufferram) * unit};
}

}  // namespace

HostCpu read_host_cpu(const std::string& root) {
  HostCpu cpu;
  std::ifstream file(root + "/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.empty()) {  // stops after the first core
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) cpu.name = value;
    if (!line.starts_with("flags")) continue;
    const std::string flags = " " + value + " ";
    const auto has = [&](std::string_view flag) {
      return flags.find(" " + std::string(flag) + " ") != std::string::npos;
    };
    cpu.has_native_bf16 = has("avx512_bf16") || has("amx_bf16");
    cpu.vector_extension = has("avx512f") ? "avx512" : has("avx2") ? "avx2" : "";
  }
  return cpu;
}

HostMemory read_host_memory(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  const std::optional<std::int64_t> total = read_field(meminfo, "MemTotal:");
  const std::optional<std::int64_t> available = read_field(meminfo, "MemAvailable:");
  HostMemory memory = total && available ? HostMemory{*total * 1024, *available * 1024} : memory_by_kernel();
  for (const Hierarchy& hierarchy : read_hierarchies(root, "memory")) {
    for (const std::string& folder : hierarchy.folders) apply_memory_limit(folder, hierarchy.version2, memory);
  }
  apply_process_limits(root, memory);
  memory.available_bytes = std::clamp<std::int64_t>(memory.available_bytes, 0, memory.total_bytes);
  return memory;
}

int read_usable_cores(const std::string& root) {
  std::int64_t cores = cores_by_affinity();
  for (const Hierarchy& hierarchy : read_hierarchies(root, "cpu")) {
    for (const std::string& folder : hierarchy.folders) {
      cores = std::min(cores, read_core_quota(folder, hierarchy.version2));
    }
  }
  return static_cast<int>(std::max<std::int64_t>(cores, 1));
}

}  // namespace tessera
