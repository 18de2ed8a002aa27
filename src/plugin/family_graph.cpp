#include "tessera/plugin/family_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/config/rope.h"
#include "tessera/model/text_body.h"
#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_table.h"

namespace tessera::plugin {
namespace {

// The maximum number of elements of a tensor. The largest published tensor has 2^33 elements.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

// Collects the weights that a plugin's family declares.
class WeightList {
 public:
  WeightList() : table_{.size = sizeof(table_), .add_part = add_part, .add_constant = add_constant, .host = this} {}
  WeightList(const WeightList&) = delete;
  WeightList& operator=(const WeightList&) = delete;

  const tessera_plugin_weights* table() const { return &table_; }
  const Status& status() const { return status_; }  // the error of the first call that failed
  std::vector<WeightSpec> take() { return std::move(specs_); }

 private:
  static std::int32_t add_part(const tessera_plugin_weights* weights, const char* weight,
                               const tessera_plugin_part* part, tessera_plugin_error* error) {
    auto& list = *static_cast<WeightList*>(weights->host);
    return list.note(list.add(weight, part), weight, error);
  }
  static std::int32_t add_constant(const tessera_plugin_weights* weights, const char* weight, const float* values,
                                   std::size_t count, tessera_plugin_error* error) {
    auto& list = *static_cast<WeightList*>(weights->host);
    return list.note(list.add(weight, values, count), weight, error);
  }

  std::int32_t note(Status status, const char* weight, tessera_plugin_error* error) {
    if (!status.ok())
      status = std::move(status).with_context(fmt::format("weight %{}", weight == nullptr ? "" : weight));
    if (status_.ok()) status_ = status;
    return to_c(status, error);
  }

  Result<WeightSpec*> spec_of(const char* weight) {
    TRY(check_set(weight, "weight", "name"));
    const auto known = std::ranges::find(specs_, weight, &WeightSpec::name);
    if (known != specs_.end()) return &*known;
    return &specs_.emplace_back(WeightSpec{.name = weight});
  }

  Status add(const char* weight, const tessera_plugin_part* given) {
    const tessera_plugin_part part = TRY(copy_table(given, "part"));
    TRY(check_set(part.tensor, "part", "tensor"));
    TRY(check_set(part.dims, "part", "dims"));
    if (part.rank < 1 || part.rank > TESSERA_PLUGIN_MAX_RANK)
      return invalid_argument(
          fmt::format("tensor {} has rank {}; 1 to {} are accepted", part.tensor, part.rank, TESSERA_PLUGIN_MAX_RANK));
    WeightPart made{.tensor = part.tensor, .shape = {}};
    std::int64_t elements = 1;
    for (std::int32_t i = 0; i < part.rank; ++i) {
      if (part.dims[i] < 1 || part.dims[i] > kMaxElements / elements)
        return invalid_argument(
            fmt::format("dimension {} of tensor {} is {}; accepted is 1 or more, and at most {} "
                        "elements in all",
                        i, part.tensor, part.dims[i], kMaxElements));
      elements *= part.dims[i];
      made.shape.push_back(part.dims[i]);
    }
    if (part.transposed != 0) {
      if (part.rank != 2)
        return invalid_argument(
            fmt::format("tensor {} of rank {} is transposed; only matrices can be", part.tensor, part.rank));
      made.storage = TransposedStorage{};
    }
    if (part.slice_size != 0) made.slice = {.dim = part.slice_dim, .begin = part.slice_begin, .size = part.slice_size};
    if (part.slice_size < 0 || part.slice_dim < 0 || part.slice_dim >= part.rank)
      return invalid_argument(fmt::format("the slice of tensor {} is {} of dimension {}; it has {} dimensions",
                                          part.tensor, part.slice_size, part.slice_dim, part.rank));
    WeightSpec* const spec = TRY(spec_of(weight));
    if (!spec->constant.empty()) return invalid_argument("it has constants already; a weight has parts or constants");
    if (part.rank == 1) spec->dummy_init = WeightSpec::Init::kOnes;
    spec->parts.push_back(std::move(made));
    return ok_status();
  }

  Status add(const char* weight, const float* values, std::size_t count) {
    if (values == nullptr || count == 0 || count > static_cast<std::size_t>(kMaxElements))
      return invalid_argument(
          fmt::format("{} constants at {}; accepted is 1 or more", count, values == nullptr ? "null" : "an address"));
    WeightSpec* const spec = TRY(spec_of(weight));
    if (!spec->constant.empty() || !spec->parts.empty())
      return invalid_argument("it has parts or constants already; a weight has one of them");
    spec->constant.assign(values, values + count);
    return ok_status();
  }

  tessera_plugin_weights table_;
  std::vector<WeightSpec> specs_;
  Status status_;
};

}  // namespace

Result<FamilyBody> make_family_body(const tessera_plugin_family& family, const ModelConfig& config,
                                    const ModelOptions& options, const ir::OpTable& ops) {
  const std::int64_t asked = options.context_length;
  const std::vector<float> inv_freq =
      compute_inv_freq(config.rope, config.head_dim, asked > 0 ? asked : config.max_position_embeddings);
  const tessera_plugin_model model{.size = sizeof(model),
                                   .config_json = config.json.c_str(),
                                   .dtype = static_cast<std::int32_t>(options.dtype),
                                   .kv_cache_dtype = static_cast<std::int32_t>(options.kv_cache_type()),
                                   .page_size = options.page_size,
                                   .max_requests = options.max_requests,
                                   .max_embeddings = options.max_embeddings,
                                   .rank = options.tp_rank,
                                   .ranks = options.tp_size,
                                   .inv_freq = inv_freq.data(),
                                   .num_inv_freq = inv_freq.size(),
                                   .rope_scale = static_cast<double>(attention_scaling(config.rope))};
  TextSink text;
  WeightList weights;
  const Status called = call([&](tessera_plugin_error* error) {
    return family.graph(family.self, &model, text.get(), weights.table(), error);
  });
  // If a declaration was refused, returns the error of the declaration. It is more precise than the plugin's own error,
  // which is then only a consequence.
  TRY(Status(weights.status()));
  TRY(Status(called));
  return read_text_body(text.take(), weights.take(), config, options, ops);
}

}  // namespace tessera::plugin
