// A program can add its own operators, kernels and model families to the engine. Catches: an added operator, kernel or
// family that the engine does not find when it plans, splits or captures a graph; a state cache that loses, mixes up or
// repeats a sequence's state when prompts are split into chunks, prefixes are reused or sequences are preempted;
// ForwardStates and layer descriptions that operators cannot read.
//
// The family has a recurrent layer, s ← s / 2 + x, y = s, with its state in one slot of a state cache group.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "tessera/engine/engine.h"
#include "tessera/model/config/sliding_windows.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/mlp.h"
#include "tessera/model/layers/norm.h"
#include "tessera/ops/contract/forward_states.h"
#include "tessera/ops/cpu/cpu_op.h"

namespace tessera {
namespace {

using ir::ValueId;

// The facts about the surrounding forward that the kernels saw during a test.
struct Seen {
  std::set<std::int64_t> experts;  // number of experts in the layer's description
  bool compiling = false;          // seen at bind
  bool capturing = false;          // seen at enqueue, like `piecewise`
  bool piecewise = false;
  bool plain = false;
};
Seen seen;

Result<std::vector<ir::Type>> infer_decay(const ir::OpSignature& s) { return std::vector{s.operands[0]}; }

const ir::OpDecl kDecay{.name = "decay",
                        .summary = "state[slot] = state[slot] / 2 + x[t]; y[t] = state[slot]; from zeros at position 0",
                        .operands = {{"x"}, {"slots"}, {"positions"}, {"state", /*mutated=*/true}},
                        .attributes = {{"layer", ir::AttributeKind::kInt, /*required=*/true}},
                        .infer = infer_decay,
                        .split_by_default = true};

class DecayOp final : public BoundOp {
 public:
  explicit DecayOp(const BindArgs& args)
      : context_(args.context),
        x_(args.operands[0]),
        slots_(args.operands[1].as<std::int32_t>()),
        positions_(args.operands[2].as<std::int32_t>()),
        state_(args.operands[3].as<float>()),
        y_(args.results[0].as<float>()) {}

  Status enqueue(Stream& stream) const override {
    seen.capturing |= in_state(context_, ForwardState::kCapturing);
    (in_state(context_, ForwardState::kPiecewise) ? seen.piecewise : seen.plain) = true;
    return as_cpu(stream).launch("decay", [x = x_, slots = slots_, positions = positions_, state = state_, y = y_] {
      for (std::int64_t t = 0; t < x.rows(); ++t) {
        float* const s = state + slots[t] * x.cols();
        for (std::int64_t i = 0; i < x.cols(); ++i) {
          s[i] = (positions[t] == 0 ? 0.0f : s[i] / 2) + x.as<float>()[t * x.cols() + i];
          y[t * x.cols() + i] = s[i];
        }
      }
    });
  }

 private:
  const ForwardContext& context_;
  TensorView x_;
  const std::int32_t* slots_;
  const std::int32_t* positions_;
  float* state_;
  float* y_;
};

Result<std::unique_ptr<BoundOp>> bind_decay(const BindArgs& args) {
  const auto layer = static_cast<std::size_t>(args.node.attribute_or("layer", std::int64_t{0}));
  if (layer < args.context.layers.size() && args.context.layers[layer].moe)
    seen.experts.insert(args.context.layers[layer].moe->num_experts);
  seen.compiling |= in_state(args.context, ForwardState::kCompiling);
  return std::make_unique<DecayOp>(args);
}

const KernelDef kDecayCpu{.op = "decay", .name = "cpu", .bind = bind_decay};

ValueId build_body(LayerBuilder& b, const ModelConfig& config) {
  ir::CacheGroup group{.name = "sums", .kind = ir::CacheGroup::Kind::kState};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) group.layers.push_back(layer);
  const TokenInputs tokens = declare_token_inputs(b, config, std::span(&group, 1));
  ResidualStream h(b, embed(b, config, tokens), config);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string p = b.begin_layer(layer);
    b.describe_layer({.moe = MoeLayer{.num_experts = 3 + layer, .experts_per_token = 1}});
    const ValueId state =
        b.graph.state("sum." + std::to_string(layer), {ir::DType::kFloat32, {ir::page_symbol(0), config.hidden_size}});
    h.add(
        b.graph.op("decay", {h.norm(p + "norm.weight"), tokens.slots[0], tokens.positions, state}, {{"layer", layer}}));
    const std::string mlp = p + "mlp.";
    h.add(gated_mlp(b, config, h.norm(p + "mlp_norm.weight"), gate_up_blocks(config, mlp), mlp));
  }
  b.end_layers();
  return h.norm("model.norm.weight");
}

ModelFamily decay_family() {
  return {.architecture = "DecayForCausalLM", .read_config = set_full_attention, .build_body = build_body};
}

std::shared_ptr<const Registry> own_registry() {
  Registry registry = built_in_registry();
  EXPECT_TRUE(registry.ops.add(kDecay).ok());
  EXPECT_TRUE(registry.devices.add_kernel("cpu", kDecayCpu).ok());
  EXPECT_TRUE(registry.families.add(decay_family()).ok());
  return std::make_shared<const Registry>(std::move(registry));
}

// Makes a folder with only config.json.
std::string model_folder() {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "own_family";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["DecayForCausalLM"], "hidden_act": "silu",
    "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 512, "num_attention_heads": 2,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "vocab_size": 300,
    "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2})";
  return folder.string();
}

EngineOptions small_options() {
  EngineOptions options{.registry = own_registry(), .model_path = model_folder(), .load_format = LoadFormat::kDummy};
  options.dtype = "float32";
  options.context_length = 256;
  options.chunked_prefill_size = 32;
  options.max_running_requests = 6;
  options.page_size = 8;
  options.random_seed = 1;
  options.deterministic = true;
  options.graphs.piecewise_tokens = {8, 32};
  options.graphs.enforce_piecewise_cuda_graph = true;  // otherwise a rule refuses its layers, which have no attention
  return options;
}

// Returns a request with a prompt of 8 to 96 tokens. Two of every three prompts are beginnings of one long text.
// Prompts end at the end of a page, where a state can be kept.
Request request(std::int64_t index) {
  Request made{.stop = {.max_new_tokens = 12 + index, .ignore_eos = true}};
  for (std::int64_t i = 0; i < 8 * (1 + index); ++i)
    made.prompt.emplace_back(static_cast<std::int32_t>(((index % 3 == 2 ? index * 41 : 7) + i * 13 + i * i) % 300));
  return made;
}

TEST(OwnFamily, RunsFromTheRegistryAndItsStatesAreExact) {
  seen = {};
  constexpr std::int64_t kRequests = 12;
  std::vector<Request> requests;
  std::vector<std::vector<TokenId>> alone;
  {
    EngineOptions options = small_options();
    options.chunked_prefill_size = 128;
    options.graphs.piecewise_tokens = {8, 128};
    options.disable_radix_cache = true;
    const Result<std::unique_ptr<Engine>> engine = Engine::create(options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    for (std::int64_t i = 0; i < kRequests; ++i) {
      requests.push_back(request(i));
      alone.push_back((*(*engine)->run({&requests.back(), 1})).front().output_ids);
    }
  }
  EngineOptions options = small_options();
  options.max_total_tokens = 4096;  // eight slots: six sequences and two prefixes
  const Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  std::size_t different_texts = 0;
  for (int round = 0; round < 2; ++round) {  // the second round finds prefixes
    const std::vector<Completion> together = *(*engine)->run(requests);
    for (std::size_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i].output_ids, alone[i]) << round << ": " << i;
    std::set<std::vector<TokenId>> texts(alone.begin(), alone.end());
    different_texts = texts.size();
  }
  EXPECT_GT(different_texts, 6u) << "the model must tell its prompts apart";
  const EngineStats stats = (*engine)->stats();
  EXPECT_GT(stats.cached_tokens, 0);
  EXPECT_EQ((*engine)->runner().options().num_pages.size(), 1u);
  EXPECT_TRUE((*engine)->runner().prefill().executable().graph().num_split_ops() == 2) << "cut at the own operator";

  EXPECT_EQ(seen.experts, (std::set<std::int64_t>{3, 4}));
  EXPECT_TRUE(seen.compiling);
  EXPECT_TRUE(seen.capturing);  // decode has no cut, so its graph holds the operator
  EXPECT_TRUE(seen.piecewise);
  EXPECT_TRUE(seen.plain);
}

TEST(OwnFamily, NamesEachMissingPart) {
  EngineOptions options = small_options();
  options.registry = shared_built_ins();
  Status status = Engine::create(options).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("DecayForCausalLM"), std::string::npos) << status.message();

  Registry without_operator = built_in_registry();
  ASSERT_TRUE(without_operator.families.add(decay_family()).ok());
  options.registry = std::make_shared<const Registry>(std::move(without_operator));
  status = Engine::create(options).status();
  EXPECT_NE(status.message().find("no operator is named 'decay'"), std::string::npos) << status.message();

  Registry without_kernel = built_in_registry();
  ASSERT_TRUE(without_kernel.families.add(decay_family()).ok());
  ASSERT_TRUE(without_kernel.ops.add(kDecay).ok());
  options.registry = std::make_shared<const Registry>(std::move(without_kernel));
  status = Engine::create(options).status();
  EXPECT_NE(status.message().find("no kernel for operator 'decay'"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace tessera
