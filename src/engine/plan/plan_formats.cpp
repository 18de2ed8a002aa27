// The steps of a plan that decide to which formats the start quantises a model.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/engine/plan/plan_steps.h"
#include "tessera/model/formats/start_format.h"

namespace tessera {
namespace {

// Returns a format's name as in WeightFormats::method(). Also accepts names of kernels, as other engines do.
std::string_view method_of(std::string_view quantization) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"gptq_marlin", "gptq"},
                                                                      {"awq_marlin", "awq"},
                                                                      {"modelopt_fp8", "modelopt"},
                                                                      {"modelopt_fp4", "modelopt"},
                                                                      {"w8a8_int8", "compressed-tensors"},
                                                                      {"w8a8_fp8", "compressed-tensors"}};
  for (const auto& [name, method] : kNames)
    if (name == quantization) return method;
  return quantization;
}

}  // namespace

Status apply_quantization(PlanDraft& draft) {
  ModelConfig& config = draft.plan.config;
  const std::string& asked = draft.options.quantization;
  const bool mxfp4 = config.moe && config.moe->mxfp4;
  const std::string method = draft.gguf ? "gguf" : mxfp4 ? "mxfp4" : config.formats.method();
  const std::optional<StartFormat> start = start_format_from_name(asked);
  if (asked.empty() || method_of(asked) == method) return ok_status();
  if (!method.empty()) {
    // Also accepts the name of a StartFormat if the checkpoint already has that format. The name "fp8" is an exception:
    // a checkpoint's method has this name too, so the comparison of methods above has already accepted or refused it.
    if (start && *start != StartFormat::kFp8 && start == config.formats.kind()) return ok_status();
    return invalid_argument(
        fmt::format("quantization: {} is not accepted; the checkpoint is quantised as {}", asked, method));
  }
  if (!start)
    return invalid_argument(
        fmt::format("quantization: {} is not accepted for a checkpoint that is not quantised; accepted are {}, which "
                    "quantise it at the start",
                    asked, kStartFormatNames));
  config.formats = config.formats.quantised_at_start(*start);
  return ok_status();
}

Status choose_head_format(PlanDraft& draft) {
  const std::string& asked = draft.options.lm_head_quantization;
  if (asked.empty()) return ok_status();
  const auto refused = [&](std::string_view why) {
    return invalid_argument(fmt::format("lm_head_quantization: {} is not accepted: {}", asked, why));
  };
  if (!start_format_from_name(asked)) return refused(fmt::format("accepted are {}", kStartFormatNames));
  if (!draft.plan.generates() || draft.plan.config.num_labels > 0) return refused("the model has no lm_head");
  if (draft.gguf) return refused("a GGUF file says the type of every matrix");
  draft.plan.model.head_format = start_format_from_name(asked);
  return ok_status();
}

Status check_quantised_head(const PlanDraft& draft) {
  const std::string& asked = draft.options.lm_head_quantization;
  const ModelGraphs& graphs = draft.plan.graphs;
  if (asked.empty() || !graphs.has_head) return ok_status();
  for (const StoredMatrix& weight : graphs.stored)
    if (weight.module == "lm_head" && !weight.unquantised)
      return invalid_argument(fmt::format(
          "lm_head_quantization: {} is not accepted: the checkpoint stores lm_head as {}", asked, weight.format));
  if (std::ranges::find(graphs.head.nodes, "linear", &ir::Node::op) == graphs.head.nodes.end()) return ok_status();
  return invalid_argument(
      fmt::format("lm_head_quantization: {} is not accepted: rows of {} columns do not take it; their number must be a "
                  "multiple of {}",
                  asked, draft.plan.config.hidden_size, start_cols(*draft.plan.model.head_format)));
}

}  // namespace tessera
