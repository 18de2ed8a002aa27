#include "tessera/cli/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/base/status.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/output.h"
#include "tessera/cli/parse.h"

namespace tessera::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongCommandLine = 2;

int report(const Status& status, int exit_code) {
  std::string message = status.message();
  std::replace(message.begin(), message.end(), '\n', ' ');
  write_error(fmt::format("tessera: error: {}\n", message));
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
    Status operator()(const ShowText& show) const { return write_output(show.text); }
    Status operator()(const GenerateOptions& options) const { return run_generate(options); }
    Status operator()(const ScoreOptions& options) const { return run_score(options); }
    Status operator()(const ExplainOptions& options) const { return run_explain(options); }
    Status operator()(const VerifyOptions& options) const { return run_verify(options); }
    Status operator()(const BenchOptions& options) const { return run_bench(options); }
  };
  return std::visit(Runner{}, command);
}

// What the standard library throws below, which is memory that cannot be had for the most part.
Status run_command_or_catch(const Command& command) {
  try {
    return run_command(command);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("out of memory");
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

}  // namespace

int run(const std::vector<std::string>& arguments) {
  const Result<CommandLine> line = parse_command_line(arguments);
  if (!line.ok()) return report(line.status(), kWrongCommandLine);
  if (const Status status = start_logging(*line); !status.ok()) return report(status, kWrongCommandLine);
  const Status status = run_command_or_catch(line->command);
  if (status.ok()) return 0;
  return report(status, status.message().starts_with("--") ? kWrongCommandLine : kFailed);
}

}  // namespace tessera::cli
