#include "tessera/cli/start_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <future>
#include <utility>

#include "tessera/cli/session.h"
#include "tessera/device/cpu/cpu_device.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kGpus = "cuda";

Result<std::unique_ptr<Engine>> start_one(EngineOptions options, int replica, int count) {
  options.show_progress = options.show_progress && replica == 0;
  options.device = replica_device(options.device, replica * options.tp_size);
  std::unique_ptr<Device> device;
  if (options.device == "cpu" && count > 1 && options.tp_size == 1) {
    const int cores = TRY(CpuDevice::create({}))->properties().threads;
    device = TRY(CpuDevice::create({.threads = std::max(1, cores / count)}));
  }
  return start_engine(options, std::move(device));
}

}  // namespace

std::string replica_device(const std::string& device, int replica) {
  const std::string_view text = device;
  if (!text.starts_with(kGpus)) return device;
  const std::string_view rest = text.substr(kGpus.size());
  if (!rest.empty() && rest[0] != ':' && rest[0] != ',') return device;
  const std::string_view choice = rest.substr(std::min(rest.find(','), rest.size()));
  int first = 0;
  if (rest.starts_with(':')) std::from_chars(rest.data() + 1, rest.data() + rest.size(), first);
  return fmt::format("{}:{}{}", kGpus, first + replica, choice);
}

Result<std::vector<std::unique_ptr<Engine>>> start_replicas(const EngineOptions& options, int count) {
  std::vector<std::unique_ptr<Engine>> engines;
  if (count == 1) {
    engines.push_back(TRY(start_engine(options)));
    return engines;
  }
  std::vector<std::future<Result<std::unique_ptr<Engine>>>> starting;
  for (int r = 0; r < count; ++r) starting.push_back(std::async(std::launch::async, start_one, options, r, count));
  Status failed = ok_status();
  for (int r = 0; r < count; ++r) {
    Result<std::unique_ptr<Engine>> engine = starting[static_cast<std::size_t>(r)].get();
    if (engine.ok()) {
      engines.push_back(*std::move(engine));
    } else if (failed.ok()) {
      failed = engine.status().with_context(fmt::format("replica {} of {}", r, count));
    }
  }
  if (!failed.ok()) return failed;
  return engines;
}

}  // namespace tessera::cli
