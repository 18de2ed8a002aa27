// A model in which each layer can be computed from given inputs, with given choices of experts. So the error of one
// layer can be measured without the errors of the layers before it.
//
// teach() is a pass over a body's graph. Behind each value that passes from one layer to the next it inserts an
// operator `taught`, and behind each router an operator `routed`. Both operators store their input. They return either
// this input or the value that another run stored. They copy to the host and back on any device, which an eager forward
// allows.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "golden.h"
#include "tessera/compile/pass.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/piecewise/split_ops.h"
#include "tessera/runner/capture/registry.h"
#include "tessera/runner/host_floats.h"
#include "tessera/runner/memory/group_pages.h"
#include "tessera/runner/model_runner.h"

namespace tessera::testing {

// The values of one forward, by the values' names in the graph.
struct Lesson {
  std::map<std::string, std::vector<float>> values;      // [T, …] between layers
  std::map<std::string, std::vector<std::int32_t>> ids;  // [T, K] of each router
  std::map<std::string, std::vector<float>> weights;     // [T, K] of each router
  std::int64_t experts_per_token = 0;
};

// The state of the running forward; only one runs at a time.
struct Teaching {
  const Lesson* given = nullptr;  // null: each layer continues from the result of the layer before it
  Lesson made;
};
inline Teaching teaching;

template <class T>
Result<std::vector<T>> read(Stream& stream, const TensorView& view) {
  std::vector<T> values(static_cast<std::size_t>(view.elements()));
  TRY(stream.download(values.data(), view.data, values.size() * sizeof(T)));
  TRY(stream.synchronize());
  return values;
}

class Taught final : public BoundOp {
 public:
  explicit Taught(const BindArgs& args)
      : name_(string_attribute(args.node, "name", "")), x_(args.operands[0]), y_(args.results[0]) {}
  Status enqueue(Stream& stream) const override {
    std::vector<std::byte> bytes(static_cast<std::size_t>(x_.bytes()));
    TRY(stream.download(bytes.data(), x_.data, bytes.size()));
    TRY(stream.synchronize());
    std::vector<float>& made = teaching.made.values[name_];
    made.resize(static_cast<std::size_t>(x_.elements()));
    TRY(widen_floats(bytes.data(), x_.dtype, made));
    if (teaching.given != nullptr) TRY(narrow_floats(teaching.given->values.at(name_), y_.dtype, bytes.data()));
    return stream.upload(y_.data, bytes.data(), bytes.size());
  }

 private:
  std::string name_;
  TensorView x_;
  TensorView y_;
};

class Routed final : public BoundOp {
 public:
  explicit Routed(const BindArgs& args)
      : name_(string_attribute(args.node, "name", "")),
        ids_(args.operands[0]),
        weights_(args.operands[1]),
        given_ids_(args.results[0]),
        given_weights_(args.results[1]) {}
  Status enqueue(Stream& stream) const override {
    Lesson& made = teaching.made;
    made.ids[name_] = TRY(read<std::int32_t>(stream, ids_));
    made.weights[name_] = TRY(read<float>(stream, weights_));
    made.experts_per_token = ids_.dim(1);
    const Lesson& from = teaching.given != nullptr ? *teaching.given : made;
    TRY(stream.upload(given_ids_.data, from.ids.at(name_).data(), static_cast<std::size_t>(given_ids_.bytes())));
    return stream.upload(given_weights_.data, from.weights.at(name_).data(),
                         static_cast<std::size_t>(given_weights_.bytes()));
  }

 private:
  std::string name_;
  TensorView ids_, weights_;
  TensorView given_ids_, given_weights_;
};

inline Result<std::vector<ir::Type>> same_types(const ir::OpSignature& s) {
  return std::vector<ir::Type>(s.operands.begin(), s.operands.end());
}
template <class Op>
Result<std::unique_ptr<BoundOp>> bind_as(const BindArgs& args) {
  return std::make_unique<Op>(args);
}

inline const ir::OpDecl kTaught{.name = "taught",
                                .summary = "x, or what another forward had in its place",
                                .operands = {{"x"}},
                                .attributes = {{"name", ir::AttributeKind::kString, /*required=*/true}},
                                .infer = same_types,
                                .capturable = false};
inline const ir::OpDecl kRouted{.name = "routed",
                                .summary = "moe_route's results, or those of another forward",
                                .operands = {{"ids"}, {"weights"}},
                                .attributes = {{"name", ir::AttributeKind::kString, /*required=*/true}},
                                .infer = same_types,
                                .capturable = false};

// Returns the layer in a value's name: "layers.3" for "layers.3.linear.1"; "" if the name has no layer.
inline std::string layer_of(const std::string& value) {
  return value.starts_with("layers.") ? value.substr(0, value.find('.', 7)) : std::string();
}

class TeachingPass {
 public:
  explicit TeachingPass(const ir::Graph& graph) : from_(graph), to_(graph), taught_(graph.values.size(), kNone) {}

  ir::Graph run() {
    const std::set<ir::ValueId> crossings = find_crossings();
    to_.nodes.clear();
    std::vector<ir::ValueId> routed(from_.values.size(), kNone);
    for (const ir::Node& node : from_.nodes) {
      ir::Node copy = node;
      for (ir::ValueId& operand : copy.operands) {
        if (routed[operand.index()] != kNone)
          operand = routed[operand.index()];
        else if (taught_[operand.index()] != kNone && crosses(operand, node))
          operand = taught_[operand.index()];
      }
      append(std::move(copy));
      if (node.op == "moe_route") {
        const std::vector<ir::ValueId> given = follow("routed", node.results);
        for (std::size_t i = 0; i < given.size(); ++i) routed[node.results[i].index()] = given[i];
      }
      for (const ir::ValueId result : node.results)
        if (crossings.contains(result)) taught_[result.index()] = follow("taught", {result})[0];
    }
    for (ir::ValueId& output : to_.outputs) output = taught_[output.index()];
    return std::move(to_);
  }

 private:
  static constexpr ir::ValueId kNone{-1};

  // Returns the layer of the value that the node makes. If the node makes none, returns the layer of the value that it
  // works on.
  std::string layer_of_node(const ir::Node& node) const {
    if (!node.results.empty()) return layer_of(from_.value(node.results[0]).name);
    for (const ir::ValueId operand : node.operands)
      if (from_.value(operand).kind == ir::ValueKind::kResult) return layer_of(from_.value(operand).name);
    return {};
  }
  bool crosses(ir::ValueId operand, const ir::Node& user) const {
    const ir::Value& value = from_.value(operand);
    return value.kind == ir::ValueKind::kResult && ir::is_floating_point(value.type.dtype) &&
           layer_of(value.name) != layer_of_node(user);
  }
  std::set<ir::ValueId> find_crossings() const {
    std::set<ir::ValueId> found(from_.outputs.begin(), from_.outputs.end());
    for (const ir::Node& node : from_.nodes)
      for (const ir::ValueId operand : node.operands)
        if (crosses(operand, node)) found.insert(operand);
    return found;
  }

  void append(ir::Node node) {
    const ir::NodeId id{static_cast<std::int32_t>(to_.nodes.size())};
    for (const ir::ValueId result : node.results) to_.value(result).producer = id;
    to_.nodes.push_back(std::move(node));
  }
  // Adds a node on `values`, named after the first of them, and returns its results.
  std::vector<ir::ValueId> follow(const char* op, const std::vector<ir::ValueId>& values) {
    const std::string name = from_.value(values[0]).name;
    ir::Node node{.op = op,
                  .operands = values,
                  .mutates = std::vector<bool>(values.size(), false),
                  .attributes = {{"name", name}}};
    for (const ir::ValueId value : values) {
      node.results.emplace_back(static_cast<std::int32_t>(to_.values.size()));
      to_.values.push_back({.name = from_.value(value).name + "." + op, .type = from_.value(value).type});
    }
    append(node);
    return node.results;
  }

  const ir::Graph& from_;
  ir::Graph to_;
  std::vector<ir::ValueId> taught_;  // [values of from_]: the values that other layers read instead
};

inline ir::Graph teach(const ir::Graph& body) { return TeachingPass(body).run(); }

inline std::shared_ptr<const Registry> teaching_registry() {
  Registry registry = built_in_registry();
  for (const ir::OpDecl* decl : {&kTaught, &kRouted}) EXPECT_TRUE(registry.ops.add(*decl).ok());
  for (const char* device : {"cpu", "cuda"})
    for (const KernelDef& kernel : {KernelDef{.op = "taught", .name = "test", .bind = bind_as<Taught>},
                                    KernelDef{.op = "routed", .name = "test", .bind = bind_as<Routed>}})
      EXPECT_TRUE(registry.devices.add_kernel(device, kernel).ok());
  return std::make_shared<const Registry>(std::move(registry));
}

// A golden checkpoint in one type, run eagerly, with each layer's fused operators.
class TaughtModel {
 public:
  static Result<std::unique_ptr<TaughtModel>> create(const std::string& folder, ir::DType dtype) {
    auto model = std::make_unique<TaughtModel>();
    RunnerOptions options;
    options.registry = teaching_registry();
    const Registry& registry = *options.registry;
    options.split_ops = default_split_ops(registry.ops);
    options.max_tokens = options.context_length = 256;
    options.max_requests = 4;
    options.page_size = kPageSize;
    const ModelConfig config = TRY(ModelConfig::read(folder, registry.families));
    ModelGraphs graphs = TRY(build_model(
        config,
        {.dtype = dtype, .page_size = kPageSize, .max_requests = 4, .max_embeddings = 256, .context_length = 256},
        registry.ops, registry.families));
    graphs.body = TRY(run_passes(teach(graphs.body), registry.ops)).graph;
    model->groups_ = graphs.body.cache_groups;
    options.num_pages.assign(model->groups_.size(), 32);
    model->device_ = TRY(registry.devices.open(test_device_name()));
    Weights weights =
        TRY(Weights::load(graphs.weights, checkpoint_source(TRY(Checkpoint::open(folder))), *model->device_, false));
    model->runner_ =
        TRY(ModelRunner::create(std::move(graphs), std::move(weights), *model->device_, std::move(options)));
    return model;
  }

  // Runs one forward of the whole prompt.
  Result<Lesson> run(const std::vector<TokenId>& prompt, const Lesson* given) {
    teaching = {.given = given, .made = {}};
    TRY(runner_->forward({.batch = batch_of(prompt), .force_eager = true}));
    return std::move(teaching.made);
  }

 private:
  static constexpr std::int64_t kPageSize = 16;

  ForwardBatch batch_of(const std::vector<TokenId>& prompt) const {
    const auto tokens = static_cast<std::int32_t>(prompt.size());
    ForwardBatch batch{.input_ids = prompt,
                       .input_rows = std::vector<std::int32_t>(prompt.size(), -1),
                       .positions = {},
                       .query_lens = {tokens},
                       .kv_lens = {tokens},
                       .wanted_rows = {tokens - 1},
                       .groups = std::vector<CacheGroupBatch>(groups_.size())};
    for (std::int32_t i = 0; i < tokens; ++i) batch.positions.push_back(i);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::vector<PageId> pages;
      for (std::int64_t i = 0; i < pages_touched(groups_[g], 0, tokens, kPageSize).end; ++i)
        pages.emplace_back(static_cast<std::int32_t>(i + 1));
      append_slots(batch.groups[g], groups_[g], 0, tokens, kPageSize, pages);
      batch.groups[g].own({pages});
    }
    return batch;
  }

  std::vector<ir::CacheGroup> groups_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ModelRunner> runner_;  // destroyed before its device
};

}  // namespace tessera::testing
