#include "tessera/cli/session/failure_report.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "tessera/cli/session/api_keys.h"
#include "tessera/cli/session/effective_config.h"
#include "tessera/cli/table.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/options/explanation.h"
#include "tessera/runner/capture/graph_failure.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// Returns the command's words as JSON. Leaves out keys and passwords, because users send reports to other people.
Json command_json(const std::vector<std::string>& arguments) {
  Json words = Json::array();
  words.push_back("tessera");
  bool secret = false;
  for (const std::string& word : arguments) {
    if (secret) {
      words.push_back(kLeftOut);
    } else if (const std::string flag = word.substr(0, word.find('=')); flag != word && is_secret_flag(flag)) {
      words.push_back(fmt::format("{}={}", flag, kLeftOut));
    } else {
      words.push_back(word);
    }
    secret = is_secret_flag(word);
  }
  return words;
}

Json device_json(const EngineOptions& options) {
  const Result<std::unique_ptr<Device>> device = open_device(options);
  if (!device.ok()) return device.status().to_string();
  const DeviceProperties& properties = (*device)->properties();
  Json json = Json::object();
  json.set("name", properties.name).set("memory_bytes", properties.memory_bytes);
  json.set("available_bytes", (*device)->available_bytes()).set("threads", properties.threads);
  json.set("compute_capability", properties.compute_capability);
  return json;
}

// Returns the version text of the NVIDIA driver. Returns null if this machine has no NVIDIA driver.
Json driver_json() {
  const Result<std::string> text = read_text_file("/proc/driver/nvidia/version");
  if (!text.ok()) return {};
  return text->substr(0, text->find('\n'));
}

std::string folder_for(const std::string& cache_dir) {
  if (!cache_dir.empty()) return (fs::path(cache_dir) / "failure_reports").string();
  std::error_code none;
  const fs::path temporary = fs::temp_directory_path(none);
  return ((none ? fs::path("/tmp") : temporary) / fmt::format("tessera-{}", ::getuid())).string();
}

// Creates a new file that only this user can read. Returns an error if the file exists.
Status write_new_file(const std::string& path, std::string_view text) {
  const auto failed = [&] { return data_loss(fmt::format("{}: cannot be written: {}", path, std::strerror(errno))); };
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return failed();
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const Status status = failed();
      ::close(file);
      ::unlink(path.c_str());
      return status;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  ::close(file);
  return ok_status();
}

// Returns `share` minus `by`, but at least 0.1, the smallest value that --mem-fraction-static accepts.
double lowered(double share, double by) { return std::max(share - by, 0.1); }

// Returns a sentence about the device's free memory; "" if the device cannot be opened any more.
std::string free_memory(const EngineOptions& options) {
  const Result<std::unique_ptr<Device>> device = open_device(options);
  if (!device.ok()) return "";
  const DeviceProperties& properties = (*device)->properties();
  return fmt::format("Free now on {}: {} of {}.\n", properties.name, bytes_text((*device)->available_bytes()),
                     bytes_text(properties.memory_bytes));
}

constexpr std::string_view kWhereToReport =
    "Where none of this helps, report it, with that file: CONTRIBUTING.md says how.\n";

std::tm utc_now() { return fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())); }

}  // namespace

std::string failure_advice(const EngineOptions& options, bool of_memory) {
  const GraphOptions& graphs = options.graphs;
  const double share = options.mem_fraction_static;
  const bool decode_only = graphs.disable_piecewise_cuda_graph || graphs.mode == GraphMode::kOff;
  const bool no_graphs = graphs.disable_cuda_graph || graphs.mode == GraphMode::kOff;
  std::string text;
  if (!decode_only && !no_graphs)
    text +=
        "Prefills run on piecewise graphs unless told otherwise; --disable-piecewise-cuda-graph starts without them.\n";
  std::string lines;
  const auto line = [&](bool of_use, const std::string& flag, std::string_view why) {
    if (of_use) lines += fmt::format("  {:<52} {}\n", flag, why);
  };
  line(of_memory,
       share > 0 ? fmt::format("--mem-fraction-static {:g} ({:g})", lowered(share, 0.01), lowered(share, 0.05))
                 : "--mem-fraction-static 0.8 (0.7)",
       "less KV cache, more room for graphs; then lower by 0.01 to 0.05 each time");
  line(of_memory && !decode_only && !no_graphs, "--piecewise-cuda-graph-max-tokens 2048 (1024, 512)",
       "smaller prefill graphs");
  line(of_memory && !decode_only && !no_graphs, "--piecewise-cuda-graph-tokens 64,256,1024", "fewer of them");
  line(of_memory && !no_graphs, "--cuda-graph-max-bs 16", "smaller decode graphs");
  line(graphs.torch_compile, "no --enable-torch-compile", "one compiler less");
  line(of_memory && no_graphs, "--chunked-prefill-size 1024", "smaller forwards");
  line(!decode_only && !no_graphs, "--disable-piecewise-cuda-graph", "prefills run eagerly");
  line(!no_graphs, "--disable-cuda-graph", "no graphs at all; not recommended: decoding is slow");
  return lines.empty() ? text : text + "What may help, the first ones costing least:\n" + lines;
}

std::string explain_dropped_sizes(const GraphInventory& graphs, const EngineOptions& options) {
  std::string text;
  for (const auto& [name, runner] : {std::pair("prefill", &graphs.prefill), std::pair("decode", &graphs.decode)}) {
    if (!runner->captured.empty() || !runner->pending.empty() || runner->dropped.empty()) continue;
    const auto& [size, why] = runner->dropped.front();
    text +=
        fmt::format("No {} graph could be captured, and these forwards run eagerly: all {} sizes failed, {} with: {}\n",
                    name, runner->dropped.size(), size, why);
  }
  return text.empty() ? text : text + failure_advice(options);
}

Json failure_report(const Status& error, const CommandLine& line, const std::vector<std::string>& arguments) {
  Json what = Json::object();
  what.set("code", status_code_name(error.code())).set("message", error.message());
  Json report = Json::object();
  report.set("time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc_now())).set("version", TESSERA_VERSION);
  report.set("error", std::move(what)).set("command", command_json(arguments));
  const EngineOptions* engine = engine_of(line.command);
  if (engine == nullptr) return report;
  const Result<Explanation> plan = explain(*engine, std::nullopt, line.values);
  report.set("device", device_json(*engine)).set("driver", driver_json());
  report.set("configuration", effective_config(line.values, plan.ok() ? &plan->plan : nullptr));
  report.set("plan", plan.ok() ? to_json(*plan) : Json(plan.status().to_string()));
  return report;
}

Result<std::string> write_failure_report(const Json& report, const std::string& cache_dir) {
  const std::string folder = folder_for(cache_dir);
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return data_loss(fmt::format("{}: cannot be made: {}", folder, failed.message()));
  const std::string path = fmt::format("{}/start-{:%Y%m%d-%H%M%S}-{}.json", folder, utc_now(), ::getpid());
  TRY(write_new_file(path, report.dump(2) + "\n"));
  return path;
}

std::string explain_failure(const Status& error, const CommandLine& line, const std::vector<std::string>& arguments) {
  const EngineOptions* engine = engine_of(line.command);
  if (engine == nullptr || !is_graph_failure(error)) return "";
  // If a kernel or a compiler does not support its input, saving memory does not help.
  const bool of_memory = error.code() != StatusCode::kUnimplemented && error.code() != StatusCode::kInvalidArgument;
  // This process itself may be out of memory, so exceptions are caught.
  try {
    const std::string advice = (of_memory ? free_memory(*engine) : "") + failure_advice(*engine, of_memory);
    const Result<std::string> path = write_failure_report(failure_report(error, line, arguments), engine->cache_dir);
    if (!path.ok()) return advice + fmt::format("No report could be kept: {}\n", path.status().message());
    return advice + fmt::format("A report of this start: {}\n", *path) + std::string(kWhereToReport);
  } catch (const std::exception& e) {
    return failure_advice(*engine, of_memory) + "No report could be kept: " + e.what() + "\n";
  }
}

}  // namespace tessera::cli
