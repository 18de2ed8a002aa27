#include "tessera/model/layers/inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/model/layers/cache.h"
#include "tessera/model/sampler.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ir::ValueId;

ValueId per_token(ir::GraphBuilder& b, std::string_view name) {
  return b.input(std::string(name), {DType::kInt32, {Symbol::kTokens}});
}

ValueId per_row(ir::GraphBuilder& b, std::string_view name, DType dtype) {
  return b.input(std::string(name), {dtype, {Symbol::kRows}});
}

}  // namespace

TokenInputs declare_token_inputs(LayerBuilder& b, const ModelConfig& config) {
  const std::optional<GuestPlace>& guest = b.options().guest;
  return guest ? declare_token_inputs(b, config, guest->groups) : declare_token_inputs(b, config, cache_groups(config));
}

TokenInputs declare_token_inputs(LayerBuilder& b, const ModelConfig& config, std::span<const ir::CacheGroup> groups) {
  ir::GraphBuilder& g = b.graph;
  TokenInputs inputs;
  inputs.ids = per_token(g, input_names::kInputIds);
  inputs.rows = per_token(g, input_names::kInputRows);
  inputs.last_ids = g.input(std::string(input_names::kLastIds), {DType::kInt32, {b.options().max_requests}});
  if (takes_embeddings(b.options())) {
    inputs.embedding_rows = per_token(g, input_names::kEmbeddingRows);
    inputs.embeddings = g.input(std::string(input_names::kEmbeddings),
                                {b.options().dtype, {b.options().max_embeddings, config.embedding_row_values()}});
  }
  if (groups.size() > ir::kMaxCacheGroups) {
    g.fail(unimplemented(fmt::format("layers with {} different cache groups; at most {} are accepted", groups.size(),
                                     ir::kMaxCacheGroups)));
  }
  for (const ir::CacheGroup& group : groups) {
    g.cache_group(group);
    inputs.slots.push_back(per_token(g, std::string(input_names::kSlots) + group.name));
  }
  const auto of_tokens =
      std::ranges::find_if(groups, [](const auto& group) { return group.kind != ir::CacheGroup::Kind::kState; });
  const std::ptrdiff_t padding = of_tokens == groups.end() ? 0 : of_tokens - groups.begin();
  inputs.padding_slots = inputs.slots[static_cast<std::size_t>(padding)];
  inputs.positions = config.rope.sections.empty()
                         ? per_token(g, input_names::kPositions)
                         : g.input(std::string(input_names::kRopePositions), {DType::kInt32, {3, Symbol::kTokens}});
  return inputs;
}

HeadInputs declare_head_inputs(LayerBuilder& b, std::int64_t hidden_size) {
  HeadInputs inputs;
  inputs.hidden = b.graph.input("hidden", {b.options().dtype, {Symbol::kTokens, hidden_size}});
  inputs.wanted_rows = per_row(b.graph, input_names::kWantedRows, DType::kInt32);
  return inputs;
}

std::vector<ValueId> declare_sampling_inputs(ir::GraphBuilder& b) {
  return {per_row(b, input_names::kTemperature, DType::kFloat32), per_row(b, input_names::kTopK, DType::kInt32),
          per_row(b, input_names::kTopP, DType::kFloat32),        per_row(b, input_names::kMinP, DType::kFloat32),
          per_row(b, input_names::kSeed, DType::kInt64),          per_row(b, input_names::kChoice, DType::kInt32),
          per_row(b, input_names::kSamplePosition, DType::kInt32)};
}

std::vector<ValueId> declare_edit_inputs(ir::GraphBuilder& b, std::int64_t vocab_size) {
  const auto list = [&](std::string_view name, DType dtype) {
    return b.input(std::string(name), {dtype, {max_choice_edits(vocab_size)}});
  };
  return {per_row(b, input_names::kEditFirst, DType::kInt32),
          per_row(b, input_names::kEditCount, DType::kInt32),
          list(input_names::kEditIds, DType::kInt32),
          list(input_names::kEditPenalties, DType::kFloat32),
          list(input_names::kEditOffsets, DType::kFloat32),
          per_row(b, input_names::kEditMask, DType::kInt32),
          b.input(std::string(input_names::kEditMasks), {DType::kInt32, {kMaxChoiceRows, (vocab_size + 31) / 32}})};
}

ValueId declare_logprob_targets(ir::GraphBuilder& b) { return per_row(b, input_names::kLogprobTargets, DType::kInt32); }

}  // namespace tessera
