#include "tessera/cli/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <span>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/base/status.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/environment.h"
#include "tessera/cli/model_source.h"
#include "tessera/cli/output.h"
#include "tessera/cli/parse.h"
#include "tessera/cli/serve/launch_environment.h"
#include "tessera/cli/serve/process_start.h"
#include "tessera/cli/serve/several_nodes.h"
#include "tessera/cli/session/effective_config.h"
#include "tessera/cli/session/failure_report.h"
#include "tessera/options/cache_dir.h"
#include "tessera/options/option_words.h"
#include "tessera/plugin/load.h"
#include "tessera/server/served_model.h"
#include "tessera/server/server_files.h"

namespace tessera::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongCommandLine = 2;

int report(const Status& status, int exit_code) {
  std::string message = status.message();
  std::replace(message.begin(), message.end(), '\n', ' ');
  write_last_error(message);
  return exit_code;
}

Status start_logging(const CommandLine& line) {
  TRY(set_log_level("warn"));
  for (const std::string& level : line.log_levels) TRY(set_log_level(level).with_context("--log-level"));
  set_log_wording([flags = line.values](std::string_view text) { return with_flags(text, flags); });
  for (const std::string& warning : line.warnings) log_warn("cli", "{}", warning);
  if (const EngineOptions* engine = engine_of(line.command)) {
    for (const LoadedPlugin& plugin : engine->registry->plugins)
      log_info("engine", "plugin {} {} from {}", plugin.name, plugin.version, plugin.file);
  }
  if (engine_of(line.command) != nullptr) {
    for (const std::string& warning : environment_warnings(process_environment)) log_warn("cli", "{}", warning);
  }
  return ok_status();
}

// Checks a server's own options, before its model is downloaded and loaded.
Status check_server(const CommandLine& line) {
  const auto* serve = std::get_if<ServeOptions>(&line.command);
  if (serve == nullptr) return ok_status();
  TRY(ServedModel::check(serve->server, serve->engine.registry->chat_formats));
  // A node that follows node 0 runs no HTTP server.
  const bool follows = serve->engine.node_rank > 0 && !serve->engine.dp_attention;
  return line.print_config || follows ? ok_status() : check_server_files(serve->server);
}

// Runs the parsed command. `began` is the time at which run() was entered.
Status run_command(CommandLine& line, Timeline::Clock::time_point began) {
  TRY(check_server(line));
  TRY(find_model(line.command, line.model));
  use_cache_dir(line.command);
  if (line.print_config) return print_config(line);
  TRY(check_nodes_of(line.command));
  if (const EngineOptions* const engine = engine_on_nodes(line.command); engine != nullptr) {
    prepare_nodes(*engine);
    if (engine->node_rank > 0 && !engine->dp_attention) return run_follower(line.command);
  }
  record_start(line.command, began);
  struct Runner {
    std::span<const FlagValue> flags;
    Status operator()(const ShowText& show) const { return write_output(show.text); }
    Status operator()(const GenerateOptions& options) const { return run_generate(options); }
    Status operator()(const BatchOptions& options) const { return run_batch(options); }
    Status operator()(const ChatOptions& options) const { return run_chat(options); }
    Status operator()(const ServeOptions& options) const { return run_serve(options); }
    Status operator()(const ScoreOptions& options) const { return run_score(options); }
    Status operator()(const ExplainOptions& options) const { return run_explain(options, flags); }
    Status operator()(const VerifyOptions& options) const { return run_verify(options); }
    Status operator()(const BenchOptions& options) const { return run_bench(options); }
    Status operator()(const BenchServeOptions& options) const { return run_bench_serve(options); }
    Status operator()(const TuneOptions& options) const { return run_tune(options); }
    Status operator()(const PullCommandOptions& options) const { return run_pull(options); }
    Status operator()(const CacheOptions& options) const { return run_cache(options); }
    Status operator()(const MakeCheckpointOptions& options) const { return run_make_checkpoint(options); }
    Status operator()(const QuantizeOptions& options) const { return run_quantize(options); }
    Status operator()(const CalibrateOptions& options) const { return run_calibrate(options); }
  };
  return std::visit(Runner{line.values}, line.command);
}

// Runs the command, and turns exceptions of the standard library, mostly for lack of memory, into an error.
Status run_command_or_catch(CommandLine& line, Timeline::Clock::time_point began) {
  try {
    return run_command(line, began);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("out of memory");
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

}  // namespace

int run(const std::shared_ptr<Registry>& registry, const std::vector<std::string>& arguments) {
  const Timeline::Clock::time_point began = Timeline::Clock::now();
  Result<CommandLine> line = parse_command_line(
      registry, arguments, [&registry](const std::string& file) { return plugin::add_plugin(file, *registry); });
  if (!line.ok()) {
    write_error(help_of_bare_command(registry, arguments));
    return report(line.status(), kWrongCommandLine);
  }
  if (const Status status = take_environment(process_environment, *line); !status.ok())
    return report(status, kWrongCommandLine);
  const Result<std::string> launcher = take_launcher(process_environment, *line);
  if (!launcher.ok()) return report(launcher.status(), kWrongCommandLine);
  if (!launcher->empty()) write_error(fmt::format("Several nodes: {}\n", *launcher));
  if (const Status status = start_logging(*line); !status.ok()) return report(status, kWrongCommandLine);
  const Status failed = run_command_or_catch(*line, began);
  if (failed.ok()) return 0;
  const Status status(failed.code(), with_flags(failed.message(), line->values));
  const int exit_code = report(status, status.message().starts_with("--") ? kWrongCommandLine : kFailed);
  write_error(explain_failure(status, *line, arguments));
  return exit_code;
}

}  // namespace tessera::cli
