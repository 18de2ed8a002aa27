#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "tessera/cli/commands.h"
#include "tessera/cli/model_source.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/engine/engine.h"

namespace tessera::cli {

Status run_tune(const TuneOptions& options) {
  const std::string& folder = options.engine.cache_dir;
  if (folder.empty())
    return not_found(
        "there is no folder to keep measurements in: none of TESSERA_CACHE_DIR, SGLANG_CACHE_DIR, XDG_CACHE_HOME and "
        "HOME is set");
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = progress_wanted();
  const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options));
  const std::size_t known = engine->runner().costs().size();
  const auto began = std::chrono::steady_clock::now();
  while (TRY(engine->idle_work())) {
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const ModelRunner& runner = engine->runner();
  const std::int64_t sizes =
      std::ssize(runner.prefill().report().captured) + std::ssize(runner.decode().report().captured);
  const auto forwards = static_cast<std::int64_t>(runner.costs().size() - known);
  const std::int64_t linears = engine->measured_algorithms();
  const std::int64_t schedules = engine->measured_schedules();
  if (options.json) {
    Json json = Json::object();
    json.set("seconds", seconds).set("captured_sizes", sizes).set("measured_forwards", forwards);
    json.set("measured_linears", linears).set("measured_schedules", schedules).set("cache", folder);
    return write_output(json.dump() + "\n");
  }
  return write_output(fmt::format(
      "{} captured sizes; measured in {} s: costs of {} forwards, algorithms of {} linears, schedules of {} "
      "generated kernels; kept in {}\n",
      count_text(sizes), number_text(seconds), count_text(forwards), count_text(linears), count_text(schedules),
      folder));
}

}  // namespace tessera::cli
