// Implements the engine functions of tessera.h.
#include <tessera.h>

#include <memory>
#include <mutex>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/capi/errors.h"
#include "tessera/capi/handles.h"
#include "tessera/capi/metrics_json.h"
#include "tessera/capi/open_options.h"
#include "tessera/options/explanation.h"
#include "tessera/options/option_words.h"
#include "tessera/plugin/load.h"
#include "tessera/server/openai/text_routes.h"
#include "tessera/server/report/server_info.h"

namespace tessera::capi {
namespace {

Result<OpenOptions> read_options(const char* text, ModelContent content) {
  const auto registry = std::make_shared<Registry>(built_in_registry());
  OpenOptions options = TRY(
      read_open_options(registry, text, [&](const std::string& file) { return plugin::add_plugin(file, *registry); }));
  // By default the library logs only warnings and errors. The caller may ask for more. Log lines name options without
  // dashes, as in the JSON of tessera_open().
  static std::once_flag quiet;
  Status status;
  std::call_once(quiet, [&] {
    status = set_log_level("warn");
    set_log_wording(with_option_names);
  });
  TRY(status);
  for (const std::string& level : options.log_levels) TRY(set_log_level(level).with_context("--log-level"));
  for (const std::string& warning : options.warnings) log_warn("cli", "{}", warning);
  TRY(find_folders(options, content));
  return options;
}

// Returns `status` with a message that names options as the caller did. Lower layers use other names for the same
// options.
Status in_words_of(const OpenOptions& options, const Status& status) {
  return {status.code(), with_flags(status.message(), options.values)};
}

}  // namespace
}  // namespace tessera::capi

using namespace tessera;
using namespace tessera::capi;

tessera_code tessera_open(const char* options, tessera_engine** engine, tessera_error** error) {
  return guarded(error, [&] {
    if (options == nullptr) return refuse_null(error, "tessera_open", "options");
    if (engine == nullptr) return refuse_null(error, "tessera_open", "engine");
    const Result<OpenOptions> read = read_options(options, ModelContent::kWeights);
    if (!read.ok()) return fail(error, read.status());
    Result<std::shared_ptr<EmbeddedEngine>> made = EmbeddedEngine::create(*read);
    if (!made.ok()) return fail(error, in_words_of(*read, made.status()));
    auto adapters = std::make_shared<AdapterCalls>(*made);
    *engine = std::make_unique<tessera_engine>(tessera_engine{*std::move(made), std::move(adapters)}).release();
    return TESSERA_OK;
  });
}

tessera_code tessera_close(tessera_engine* engine, tessera_error** error) {
  return guarded(error, [&] {
    if (in_callback()) return refuse_in_callback(error, "tessera_close");
    if (engine != nullptr) {
      if (const Status process = engine->engine->check_process(); !process.ok()) return fail(error, process);
    }
    const std::unique_ptr<tessera_engine> owned(engine);
    if (owned) owned->engine->stop();
    return TESSERA_OK;
  });
}

tessera_code tessera_health(tessera_engine* engine, tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_health", "engine");
    const Status health = engine->engine->health();
    return health.ok() ? TESSERA_OK : fail(error, health);
  });
}

tessera_code tessera_explain(const char* options, char** json, tessera_error** error) {
  return guarded(error, [&] {
    if (options == nullptr) return refuse_null(error, "tessera_explain", "options");
    if (json == nullptr) return refuse_null(error, "tessera_explain", "json");
    const Result<OpenOptions> read = read_options(options, ModelContent::kConfig);
    if (!read.ok()) return fail(error, read.status());
    const Result<Explanation> explained = explain(read->engine, std::nullopt, read->values);
    if (!explained.ok()) return fail(error, in_words_of(*read, explained.status()));
    *json = copy_out(to_json(*explained).dump());
    return TESSERA_OK;
  });
}

tessera_code tessera_info(tessera_engine* engine, char** json, tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_info", "engine");
    if (json == nullptr) return refuse_null(error, "tessera_info", "json");
    if (in_callback()) return refuse_in_callback(error, "tessera_info");
    EmbeddedEngine& embedded = *engine->engine;
    const Result<std::string> info =
        embedded.ask_engine([&embedded](Engine& asked) { return server_info_body(asked, embedded.model()); });
    if (!info.ok()) return fail(error, info.status());
    *json = copy_out(R"({"model":)" + model_info_body(embedded.model()) + R"(,"engine":)" + *info + "}");
    return TESSERA_OK;
  });
}

tessera_code tessera_metrics(tessera_engine* engine, char** json, tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_metrics", "engine");
    if (json == nullptr) return refuse_null(error, "tessera_metrics", "json");
    const Result<EngineStats> stats = engine->engine->stats();
    if (!stats.ok()) return fail(error, stats.status());
    *json = copy_out(metrics_json(*stats));
    return TESSERA_OK;
  });
}
