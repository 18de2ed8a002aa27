#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tessera/cli/commands.h"
#include "tessera/cli/explanation.h"
#include "tessera/cli/output.h"

namespace tessera::cli {
namespace {

std::string render(const Explanation& explanation, ExplainFormat format) {
  switch (format) {
    case ExplainFormat::kText: return to_text(explanation);
    case ExplainFormat::kJson: return to_json(explanation).dump() + "\n";
    case ExplainFormat::kDot: return to_picture(explanation, /*svg=*/false);
    case ExplainFormat::kSvg: return to_picture(explanation, /*svg=*/true);
  }
  return "";
}

Status write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return not_found(fmt::format("{}: {}", path, std::strerror(errno)));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return data_loss(fmt::format("{}: {}", path, std::strerror(errno)));
  return ok_status();
}

}  // namespace

Status run_explain(const ExplainOptions& options) {
  const Explanation explanation = TRY(explain(options.engine, options.num_tokens));
  const std::string text = render(explanation, options.format);
  if (options.output.empty()) {
    TRY(write_output(text));
  } else {
    TRY(write_file(options.output, text));
  }
  const GraphSwitches& graphs = explanation.plan.runner.graphs;
  if (graphs.prefill) return ok_status();
  return failed_precondition(fmt::format("piecewise graphs are off: {}", fmt::join(graphs.messages, "; ")));
}

}  // namespace tessera::cli
