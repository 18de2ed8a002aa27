#include "tessera/model/text_body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "tessera/ir/text.h"
#include "tessera/ir/verify.h"
#include "tessera/model/weights/padded_part.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ir::Type;

// The type of an input that a body may declare, and whether the body must read it.
struct Staged {
  Type type;
  bool needed = false;
};
std::map<std::string, Staged, std::less<>> staged_inputs(const ModelConfig& config, const ModelOptions& options,
                                                         const ir::Graph& graph) {
  const Type per_token{DType::kInt32, {Symbol::kTokens}};
  std::map<std::string, Staged, std::less<>> all;
  const auto add = [&](std::string_view name, Type type, bool needed) {
    all.emplace(name, Staged{.type = std::move(type), .needed = needed});
  };
  add(input_names::kInputIds, per_token, true);
  add(input_names::kInputRows, per_token, true);
  add(input_names::kLastIds, {DType::kInt32, {options.max_requests}}, true);
  add(input_names::kEmbeddingRows, per_token, true);
  add(input_names::kEmbeddings, {options.dtype, {options.max_embeddings, config.embedding_row_values()}}, true);
  if (config.rope.sections.empty()) {
    add(input_names::kPositions, per_token, false);
  } else {
    add(input_names::kRopePositions, {DType::kInt32, {3, Symbol::kTokens}}, false);
  }
  for (const ir::CacheGroup& group : graph.cache_groups)
    add(std::string(input_names::kSlots) + group.name, per_token, false);
  return all;
}

class Check {
 public:
  Check(std::string_view text, const ir::Graph& graph, const ModelConfig& config, const ModelOptions& options)
      : text_(text), graph_(graph), config_(config), options_(options) {}

  Status run() const {
    TRY(groups());
    for (const ir::ValueId id : graph_.inputs) TRY(input(graph_.value(id)));
    TRY(needed_inputs());
    for (const ir::ValueId id : graph_.states) TRY(state(graph_.value(id)));
    for (const ir::ValueId id : graph_.weights) TRY(weight(graph_.value(id)));
    for (const ir::Value& value : graph_.values) TRY(sizes(value));
    return output();
  }

 private:
  // Returns where a value is in the text, for errors: "line 7: input %x ". The line is the first line with the value's
  // name.
  std::string place(const ir::Value& value) const {
    const std::string words = fmt::format("{} %{}", ir::value_kind_name(value.kind), value.name);
    const std::string bare = fmt::format("%{}", value.name);
    const std::string quoted = fmt::format("%\"{}\"", value.name);
    std::size_t at = std::string_view::npos;
    for (const std::string& name : {bare, quoted}) {
      for (at = text_.find(name); at != std::string_view::npos; at = text_.find(name, at + 1)) {
        const std::size_t end = at + name.size();
        if (end == text_.size() || std::string_view(" \t\r\n:,=)").find(text_[end]) != std::string_view::npos) break;
      }
      if (at != std::string_view::npos) break;
    }
    if (at == std::string_view::npos) return words + " ";
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return fmt::format("line {}: {} ", line, words);
  }

  Status groups() const {
    const std::size_t count = graph_.cache_groups.size();
    if (count == 0 || count > ir::kMaxCacheGroups)
      return invalid_argument(
          fmt::format("it declares {} cache groups; 1 to {} are accepted, as in "
                      "group \"full\" paged layers [0, 1]",
                      count, ir::kMaxCacheGroups));
    for (const ir::CacheGroup& group : graph_.cache_groups) {
      for (const std::int64_t layer : group.layers) {
        if (layer >= 0 && layer < config_.num_hidden_layers) continue;
        return invalid_argument(fmt::format("group \"{}\" has layer {}; the config has layers 0 to {}", group.name,
                                            layer, config_.num_hidden_layers - 1));
      }
    }
    return ok_status();
  }

  Status input(const ir::Value& value) const {
    const auto known = staged_inputs(config_, options_, graph_);
    const auto found = known.find(value.name);
    if (found == known.end()) {
      std::vector<std::string_view> names;
      for (const auto& [name, staged] : known) names.push_back(name);
      return invalid_argument(
          fmt::format("{}is nothing that the engine stages; accepted: {}", place(value), fmt::join(names, ", ")));
    }
    if (found->second.type == value.type) return ok_status();
    return invalid_argument(
        fmt::format("{}has type {}; it is {}", place(value), value.type.to_string(), found->second.type.to_string()));
  }

  Status needed_inputs() const {
    const auto is_read = [&](std::string_view name) {
      return std::ranges::any_of(graph_.nodes, [&](const ir::Node& node) {
        return std::ranges::any_of(node.operands, [&](ir::ValueId id) {
          return graph_.value(id).kind == ir::ValueKind::kInput && graph_.value(id).name == name;
        });
      });
    };
    for (const auto& [name, staged] : staged_inputs(config_, options_, graph_)) {
      if (!staged.needed || is_read(name)) continue;
      return invalid_argument(fmt::format(
          "no node reads the input %{}: {}; tokens come by it too (operators resolve_ids and embedding take it)", name,
          staged.type.to_string()));
    }
    return ok_status();
  }

  Status state(const ir::Value& value) const {
    const std::optional<std::size_t> group = ir::cache_group_of(value.type);
    if (!group || *group >= graph_.cache_groups.size())
      return invalid_argument(
          fmt::format("{}has type {}; its first dimension must be the pages of one of the {} groups, P "
                      "for the first",
                      place(value), value.type.to_string(), graph_.cache_groups.size()));
    const auto is_size = [](const ir::Dim& dim) { return dim.constant().value_or(0) > 0; };
    if (!std::all_of(value.type.shape.begin() + 1, value.type.shape.end(), is_size))
      return invalid_argument(fmt::format("{}has type {}; its dimensions behind the pages must be numbers from 1 on",
                                          place(value), value.type.to_string()));
    if (graph_.cache_groups[*group].kind == ir::CacheGroup::Kind::kState) return ok_status();
    const bool paged = value.type.shape.size() > 1 && value.type.shape[1].constant() == options_.page_size;
    if (paged) return ok_status();
    return invalid_argument(fmt::format("{}has type {}; its second dimension must be the tokens of a page, {}",
                                        place(value), value.type.to_string(), options_.page_size));
  }

  Status weight(const ir::Value& value) const {
    const DType dtype = value.type.dtype;
    const bool constant =
        std::ranges::all_of(value.type.shape, [](const ir::Dim& dim) { return dim.constant().has_value(); });
    if (constant && ir::is_floating_point(dtype)) return ok_status();
    return invalid_argument(fmt::format("{}has type {}; accepted are numbers as sizes, and f32, f16 or bf16",
                                        place(value), value.type.to_string()));
  }

  Status sizes(const ir::Value& value) const {
    for (int s = 0; s < ir::kNumSymbols; ++s) {
      const auto symbol = static_cast<Symbol>(s);
      const bool of_group =
          symbol >= Symbol::kPages &&
          static_cast<std::size_t>(s) - static_cast<std::size_t>(Symbol::kPages) < graph_.cache_groups.size();
      if (symbol == Symbol::kTokens || of_group) continue;
      if (std::ranges::any_of(value.type.shape, [&](const ir::Dim& dim) { return dim.uses(symbol); }))
        return invalid_argument(fmt::format("{}has type {}; a body's sizes are T and the pages of its groups",
                                            place(value), value.type.to_string()));
    }
    return ok_status();
  }

  Status output() const {
    const Type hidden{options_.dtype, {Symbol::kTokens, config_.hidden_size}};
    if (graph_.outputs.size() != 1)
      return invalid_argument(
          fmt::format("it returns {} values; it must return one, {}", graph_.outputs.size(), hidden.to_string()));
    const ir::Value& value = graph_.value(graph_.outputs[0]);
    if (value.type != hidden || value.kind != ir::ValueKind::kResult)
      return invalid_argument(fmt::format("{}is returned and has type {}; what a body returns is a result {}",
                                          place(value), value.type.to_string(), hidden.to_string()));
    const ir::Value* other = graph_.find_value("hidden");
    if (other == nullptr || other == &value) return ok_status();
    return invalid_argument(fmt::format("{}has the name of the body's output; give it another", place(*other)));
  }

  std::string_view text_;
  const ir::Graph& graph_;
  const ModelConfig& config_;
  const ModelOptions& options_;
};

WeightSpec tensor_of_its_name(const ir::Value& weight) {
  WeightPart part{.tensor = weight.name, .shape = {}};
  for (const ir::Dim& dim : weight.type.shape) part.shape.push_back(dim.constant().value_or(0));
  // `init` says how the weight is filled in a model with random weights. A vector is usually a norm's weight, so it is
  // filled with ones.
  const auto init = part.shape.size() == 1 ? WeightSpec::Init::kOnes : WeightSpec::Init::kUniform;
  return {.name = weight.name, .parts = {std::move(part)}, .dummy_init = init};
}

// Checks that the parts, or the constant, have as many elements as the weight's type.
Status check_elements(const WeightSpec& spec) {
  std::int64_t wanted = 1;
  for (const std::int64_t size : TRY(ir::evaluate(spec.type.shape, {}))) wanted *= size;
  std::int64_t given = std::ssize(spec.constant);
  for (const WeightPart& part : spec.parts)
    given += TRY(part_extent(part).with_context(fmt::format("tensor {}", part.tensor))).num_elements();
  if (given == wanted) return ok_status();
  return invalid_argument(fmt::format("{} have {} elements; its type {} has {}",
                                      spec.parts.empty() ? "its constants" : "its parts", given, spec.type.to_string(),
                                      wanted));
}

Result<std::vector<WeightSpec>> join(const ir::Graph& graph, std::vector<WeightSpec> specs) {
  std::vector<WeightSpec> all;
  for (const ir::ValueId id : graph.weights) {
    const ir::Value& weight = graph.value(id);
    const auto given = std::ranges::find(specs, weight.name, &WeightSpec::name);
    WeightSpec spec = given == specs.end() ? tensor_of_its_name(weight) : std::move(*given);
    if (given != specs.end()) specs.erase(given);
    spec.type = weight.type;
    TRY(check_elements(spec).with_context(fmt::format("weight %{}", weight.name)));
    all.push_back(std::move(spec));
  }
  if (specs.empty()) return all;
  return invalid_argument(fmt::format(
      "a spec is for weight %{}, which the graph does not declare, or which another spec is for", specs[0].name));
}

}  // namespace

Result<FamilyBody> read_text_body(std::string_view text, std::vector<WeightSpec> specs, const ModelConfig& config,
                                  const ModelOptions& options, const ir::OpTable& ops) {
  ir::Graph graph = TRY(ir::parse_graph(text, &ops));
  const Status verified = ir::verify(graph, ops);
  if (!verified.ok()) return invalid_argument(verified.message());
  TRY(Check(text, graph, config, options).run());
  std::vector<WeightSpec> weights = TRY(join(graph, std::move(specs)));
  graph.name = "body";
  graph.value(graph.outputs[0]).name = "hidden";
  return FamilyBody{.graph = std::move(graph), .weights = std::move(weights)};
}

}  // namespace tessera
