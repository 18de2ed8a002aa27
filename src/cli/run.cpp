#include "tessera/cli/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/base/status.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/parse.h"

namespace tessera::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongCommandLine = 2;

int report(const Status& status, int exit_code) {
  std::string message = status.message();
  std::replace(message.begin(), message.end(), '\n', ' ');
  fmt::print(stderr, "tessera: error: {}\n", message);
  return exit_code;
}

Status start_logging(const CommandLine& line) {
  TRY(set_log_level("warn"));
  for (const std::string& level : line.log_levels) TRY(set_log_level(level).with_context("--log-level"));
  for (const std::string& warning : line.warnings) log_warn("cli", "{}", warning);
  return ok_status();
}

Status run_command(const Command& command) {
  struct Runner {
    Status operator()(const ShowText& show) const {
      fmt::print("{}", show.text);
      return ok_status();
    }
    Status operator()(const GenerateOptions& options) const { return run_generate(options); }
    Status operator()(const ScoreOptions& options) const { return run_score(options); }
    Status operator()(const ExplainOptions& options) const { return run_explain(options); }
    Status operator()(const VerifyOptions& options) const { return run_verify(options); }
    Status operator()(const BenchOptions& options) const { return run_bench(options); }
  };
  TRY(std::visit(Runner{}, command));
  // A full disk or a closed pipe shows here at the latest.
  if (std::fflush(stdout) != 0) return data_loss("standard output could not be written");
  return ok_status();
}

}  // namespace

int run(std::vector<std::string> arguments) {
  const Result<CommandLine> line = parse_command_line(std::move(arguments));
  if (!line.ok()) return report(line.status(), kWrongCommandLine);
  if (const Status status = start_logging(*line); !status.ok()) return report(status, kWrongCommandLine);
  const Status status = run_command(line->command);
  if (status.ok()) return 0;
  std::fflush(stdout);
  return report(status, status.message().starts_with("--") ? kWrongCommandLine : kFailed);
}

}  // namespace tessera::cli
