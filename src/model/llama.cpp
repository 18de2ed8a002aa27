#include "tessera/model/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/model/layers.h"
#include "tessera/model/sampler.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ir::ValueId;

std::string group_name(std::int64_t window) { return window == 0 ? "full" : fmt::format("window.{}", window); }

// Layers with one window share a group; groups in the order of their first layer.
Result<std::vector<ir::CacheGroup>> cache_groups(const ModelConfig& config) {
  std::vector<ir::CacheGroup> groups;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::int64_t window = config.sliding_windows[static_cast<std::size_t>(layer)];
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const ir::CacheGroup& g) { return g.window == window; });
    if (group == groups.end()) {
      groups.push_back({.name = group_name(window),
                        .kind = window == 0 ? ir::CacheGroup::Kind::kPaged : ir::CacheGroup::Kind::kWindow,
                        .window = window,
                        .layers = {}});
      group = groups.end() - 1;
    }
    group->layers.push_back(layer);
  }
  if (groups.size() > ir::kMaxCacheGroups) {
    return unimplemented(fmt::format("layers with {} different attention windows; at most {} are accepted",
                                     groups.size(), ir::kMaxCacheGroups));
  }
  return groups;
}

class LlamaBody {
 public:
  LlamaBody(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops)
      : config_(config), b_("body", options, ops) {}

  Result<ModelGraphs> build() {
    groups_ = TRY(cache_groups(config_));
    const ValueId positions = stage_inputs();
    const ValueId ids = g().op("resolve_ids", {input_ids_, input_rows_, last_ids_});
    const ValueId table = b_.matrix("model.embed_tokens.weight", config_.vocab_size, config_.hidden_size);
    ValueId residual = g().op("embedding", {ids, table, input_embeds_});
    const ValueId inv_freq = b_.constant("rope.inv_freq", compute_inv_freq(config_.rope, config_.head_dim));
    rope_table_ = g().op("rotary_table", {positions, inv_freq},
                         {{"scale", static_cast<double>(attention_scaling(config_.rope))}});

    ValueId normed{};
    ValueId branch{};  // what the last layer's MLP adds to the residual stream
    for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      prefix_ = fmt::format("model.layers.{}.", layer);
      g().scope(fmt::format("layers.{}", layer));
      const ValueId input_norm = b_.norm_weight(prefix_ + "input_layernorm.weight", config_.hidden_size);
      if (layer == 0) {
        normed = g().op("rms_norm", {residual, input_norm}, eps());
      } else {
        std::tie(normed, residual) = add_norm(branch, residual, input_norm);
      }
      branch = attention(layer, normed);
      std::tie(normed, residual) =
          add_norm(branch, residual, b_.norm_weight(prefix_ + "post_attention_layernorm.weight", config_.hidden_size));
      branch = mlp(normed);
    }
    g().scope("");
    const ValueId hidden = add_norm(branch, residual, b_.norm_weight("model.norm.weight", config_.hidden_size)).first;
    g().output(hidden);

    ModelGraphs graphs;
    graphs.body = TRY(g().finish());
    graphs.body.value(hidden).name = "hidden";
    graphs.weights = b_.take_weights();
    return graphs;
  }

 private:
  ir::GraphBuilder& g() { return b_.graph; }
  ir::Attributes eps() const { return {{"eps", config_.rms_norm_eps}}; }

  ValueId stage_inputs() {
    const ir::Type per_token{DType::kInt32, {ir::Dim(Symbol::kTokens)}};
    input_ids_ = g().input(std::string(input_names::kInputIds), per_token);
    input_rows_ = g().input(std::string(input_names::kInputRows), per_token);
    last_ids_ = g().input(std::string(input_names::kLastIds), {DType::kInt32, {ir::Dim(b_.options().max_requests)}});
    input_embeds_ = g().input(std::string(input_names::kInputEmbeds),
                              {b_.options().dtype, {ir::Dim(Symbol::kTokens), ir::Dim(config_.hidden_size)}});
    for (const ir::CacheGroup& group : groups_) {
      g().cache_group(group);
      slots_.push_back(g().input(std::string(input_names::kSlots) + group.name, per_token));
    }
    return g().input(std::string(input_names::kPositions), per_token);
  }

  std::pair<ValueId, ValueId> add_norm(ValueId branch, ValueId residual, ValueId weight) {
    const std::vector<ValueId> both = g().multi_op("add_rms_norm", {branch, residual, weight}, eps());
    return both.size() == 2 ? std::pair(both[0], both[1]) : std::pair(branch, residual);  // the builder keeps the error
  }

  // x [T, hidden] → [T, hidden]
  ValueId attention(std::int64_t layer, ValueId x) {
    const ModelOptions& options = b_.options();
    const std::int64_t ranks = options.tp_size;
    const std::int64_t heads = config_.num_attention_heads / ranks;
    const std::int64_t kv_heads = std::max<std::int64_t>(config_.num_key_value_heads / ranks, 1);
    const std::string p = prefix_ + "self_attn.";
    const ValueId qkv = b_.linear(p + "qkv_proj", x, config_.hidden_size,
                                  {{p + "q_proj", config_.query_size()},
                                   {p + "k_proj", config_.key_value_size(), config_.num_key_value_heads},
                                   {p + "v_proj", config_.key_value_size(), config_.num_key_value_heads}},
                                  config_.qkv_bias, Parallel::kColumn);
    const std::int64_t window = config_.sliding_windows[static_cast<std::size_t>(layer)];
    const auto group = static_cast<std::size_t>(
        std::find_if(groups_.begin(), groups_.end(), [&](const ir::CacheGroup& c) { return c.window == window; }) -
        groups_.begin());
    const ir::Type cache{
        options.dtype,
        {ir::Dim(ir::page_symbol(group)), ir::Dim(options.page_size), ir::Dim(kv_heads), ir::Dim(config_.head_dim)}};
    const ValueId k_cache = g().state(fmt::format("k_cache.{}", layer), cache);
    const ValueId v_cache = g().state(fmt::format("v_cache.{}", layer), cache);
    std::vector<ValueId> operands{qkv, rope_table_, slots_[group], k_cache, v_cache};
    ir::Attributes attributes{{"heads", heads}};
    if (config_.qk_norm) {
      attributes.emplace_back("qk_norm", true);
      attributes.emplace_back("eps", config_.rms_norm_eps);
      operands.push_back(b_.norm_weight(p + "q_norm.weight", config_.head_dim));
      operands.push_back(b_.norm_weight(p + "k_norm.weight", config_.head_dim));
    }
    const ValueId q = g().op("qkv_rope_store", operands, attributes);
    const ValueId out = g().op("empty_like", {q});
    g().op("attention", {q, k_cache, v_cache, out},
           {{"group", static_cast<std::int64_t>(group)},
            {"scale", 1.0 / std::sqrt(static_cast<double>(config_.head_dim))},
            {"window", window}});
    return b_.linear(p + "o_proj", out, config_.query_size(), {{p + "o_proj", config_.hidden_size}}, config_.o_bias,
                     Parallel::kRow);
  }

  // x [T, hidden] → [T, hidden]
  ValueId mlp(ValueId x) {
    const std::string p = prefix_ + "mlp.";
    const ValueId gate_up =
        b_.linear(p + "gate_up_proj", x, config_.hidden_size,
                  {{p + "gate_proj", config_.intermediate_size}, {p + "up_proj", config_.intermediate_size}},
                  config_.mlp_bias, Parallel::kColumn);
    const ValueId activated =
        config_.hidden_act == Activation::kSilu
            ? g().op("silu_mul", {gate_up})
            : g().op("gelu_mul", {gate_up}, {{"tanh", config_.hidden_act == Activation::kGeluTanh}});
    return b_.linear(p + "down_proj", activated, config_.intermediate_size, {{p + "down_proj", config_.hidden_size}},
                     config_.mlp_bias, Parallel::kRow);
  }

  const ModelConfig& config_;
  LayerBuilder b_;
  std::string prefix_;  // "model.layers.3."
  std::vector<ir::CacheGroup> groups_;
  ValueId input_ids_, input_rows_, last_ids_, input_embeds_, rope_table_;
  std::vector<ValueId> slots_;  // [groups]
};

// hidden [T, hidden], wanted_rows [R] → logits f32[R, vocab]
Status build_head(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops, ModelGraphs& graphs) {
  LayerBuilder b("head", options, ops);
  const ValueId hidden =
      b.graph.input("hidden", {options.dtype, {ir::Dim(Symbol::kTokens), ir::Dim(config.hidden_size)}});
  const ValueId rows = b.graph.input(std::string(input_names::kWantedRows), {DType::kInt32, {ir::Dim(Symbol::kRows)}});
  const ValueId wanted = b.graph.op("gather_rows", {hidden, rows});

  // A vocabulary that does not divide among the ranks is computed by each of them.
  const bool sliced = options.tp_size > 1 && config.vocab_size % options.tp_size == 0;
  const std::string tensor = config.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
  const std::string name = sliced ? "lm_head.slice" : tensor;  // a tied head is the embedding's own memory
  ValueId logits = b.linear(name, wanted, config.hidden_size, {{tensor, config.vocab_size}}, false,
                            sliced ? Parallel::kColumn : Parallel::kNone);
  if (sliced) logits = b.graph.op("all_gather", {logits}, {{"ranks", static_cast<std::int64_t>(options.tp_size)}});
  if (options.dtype != DType::kFloat32) logits = b.graph.op("cast", {logits}, {{"dtype", std::string("f32")}});
  b.graph.output(logits);

  graphs.head = TRY(b.graph.finish());
  graphs.head.value(logits).name = "logits";
  for (WeightSpec& spec : b.take_weights()) {
    const bool known = std::any_of(graphs.weights.begin(), graphs.weights.end(),
                                   [&](const WeightSpec& w) { return w.name == spec.name; });
    if (!known) graphs.weights.push_back(std::move(spec));
  }
  return ok_status();
}

}  // namespace

Result<ModelGraphs> build_llama(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops) {
  if (config.num_attention_heads % options.tp_size != 0) {
    return invalid_argument(fmt::format("num_attention_heads is {}, which does not divide among {} ranks",
                                        config.num_attention_heads, options.tp_size));
  }
  ModelGraphs graphs = TRY(LlamaBody(config, options, ops).build());
  TRY(build_head(config, options, ops, graphs));
  graphs.sampler = TRY(build_sampler(config.vocab_size, ops));
  graphs.choose = TRY(build_choose(config.vocab_size, ops));
  graphs.logprobs = TRY(build_logprobs(config.vocab_size, ops));
  return graphs;
}

}  // namespace tessera
