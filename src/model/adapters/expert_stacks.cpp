#include "tessera/model/adapters/expert_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/model/weights/tensor_copy.h"

namespace tessera {
namespace {

constexpr std::string_view kNested = ".base_layer";

std::string_view without_nesting(std::string_view module) {
  while (module.ends_with(kNested)) module.remove_suffix(kNested.size());
  return module;
}

// Returns the name of the stack that contains an expert's module: "….experts" for "….experts.3.up_proj".
std::string_view stack_of(std::string_view module) {
  module = module.substr(0, module.rfind('.'));
  return module.substr(0, module.rfind('.'));
}

// Returns the number of rows that one expert has in the stack. This is the sum of the rows of the expert's modules.
std::int64_t stack_rows(const AdaptableLinear& linear) {
  std::int64_t rows = 0;
  for (const AdaptableModule& module : linear.modules) rows = std::max(rows, module.stack_row + module.rows);
  return rows;
}

// Cuts the matrices of one expert's module out of the stack's matrices `a` and `b`. The modules of an expert share
// the expert's A, so the module gets the whole A. The rows of the expert's B are divided among the modules, so the
// module gets only its own rows.
AdapterMatrices of_expert(const AdapterMatrix& a, const AdapterMatrix& b, std::int64_t experts, std::int64_t rank,
                          const AdaptableModule& module) {
  AdapterMatrices made;
  made.rank = rank;
  const std::int64_t columns = a.shape[1];
  made.values.reserve(static_cast<std::size_t>(rank * (columns + module.rows)));
  const float* const from = a.values.data() + module.expert * rank * columns;
  made.values.assign(from, from + rank * columns);
  for (std::int64_t row = module.stack_row; row < module.stack_row + module.rows; ++row)
    for (std::int64_t r = 0; r < rank; ++r)
      made.values.push_back(b.values[static_cast<std::size_t>((row * rank + r) * experts + module.expert)]);
  const std::span<const std::byte> bytes = std::as_bytes(std::span<const float>(made.values));
  const auto size_of_a = static_cast<std::size_t>(rank * columns) * sizeof(float);
  made.a = {.name = module.name, .shape = {rank, columns}, .data = bytes.first(size_of_a)};
  made.b = {.name = module.name, .shape = {module.rows, rank}, .data = bytes.subspan(size_of_a)};
  return made;
}

}  // namespace

bool is_expert_stack(std::string_view module) { return without_nesting(module).ends_with(".experts"); }

Result<std::vector<ExpertMatrices>> cut_expert_stack(const std::string& path, const std::string& module,
                                                     const AdapterMatrix& a, const AdapterMatrix& b,
                                                     const AdapterConfig& config, const AdapterLayout& layout) {
  const std::string_view stack = from_layer(without_nesting(module));
  std::vector<ExpertMatrices> cut;
  // The key is the module's name. Ranks that hold parts of the same expert share its matrices.
  std::map<std::string, std::shared_ptr<const AdapterMatrices>> made;
  bool known = false;
  for (std::size_t rank = 0; rank < layout.num_ranks(); ++rank)
    for (std::size_t i = 0; i < layout.linears_of(rank).size(); ++i) {
      const AdaptableLinear& linear = layout.linears_of(rank)[i];
      if (linear.experts == 0 || from_layer(stack_of(linear.modules[0].name)) != stack) continue;
      known = true;
      const bool fits = a.shape.size() == 2 && a.shape[1] == linear.modules[0].cols &&
                        a.shape[0] % linear.experts == 0 &&
                        b.shape == std::vector<std::int64_t>{stack_rows(linear), a.shape[0]};
      if (!fits || a.shape[0] < 1) continue;
      const std::int64_t of_expert_rank = a.shape[0] / linear.experts;
      if (of_expert_rank > layout.limits().max_rank)
        return invalid_argument(fmt::format("{}: \"{}\" has rank {}; at most {} is accepted (max_lora_rank)", path,
                                            module, of_expert_rank, layout.limits().max_rank));
      if (const std::int64_t said = TRY(config.rank_of(module)); said != of_expert_rank)
        return invalid_argument(
            fmt::format("{}: \"{}\" has rank {} for each of {} experts, but adapter_config.json "
                        "says {}",
                        path, module, of_expert_rank, linear.experts, said));
      const double scale = TRY(config.scale_of(module, of_expert_rank));
      for (std::size_t m = 0; m < linear.modules.size(); ++m) {
        auto& matrices = made[linear.modules[m].name];
        if (matrices == nullptr) {
          AdapterMatrices cut_out = of_expert(a, b, linear.experts, of_expert_rank, linear.modules[m]);
          cut_out.scale = scale;
          matrices = std::make_shared<const AdapterMatrices>(std::move(cut_out));
        }
        cut.push_back({.place = {.rank = rank, .linear = i, .module = m}, .matrices = matrices});
      }
    }
  if (!known)
    return invalid_argument(
        fmt::format("{}: adapters cannot change \"{}\" here; accepted are the model's modules {} (lora_target_modules)",
                    path, module, layout.target_names()));
  if (cut.empty())
    return invalid_argument(
        fmt::format("{}: \"{}\" has lora_A {} and lora_B {}, which fit no stack of the model's experts: the adapter is "
                    "for another model",
                    path, module, shape_text(a.shape), shape_text(b.shape)));
  return cut;
}

}  // namespace tessera
