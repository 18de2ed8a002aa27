#include "tessera/model/weights/join_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace tessera {
namespace {

// The names of the layouts, in the order of Storage's alternatives.
constexpr std::array kLayouts = {"plain",   "transposed", "scaled",  "strided", "packed",
                                 "nibbles", "grid",       "rounded", "blocks",  "indices"};
static_assert(kLayouts.size() == std::variant_size_v<Storage>);

// fields_of() returns the fields in which two storages of the same type may differ.
auto fields_of(const PlainStorage&) { return std::tuple<>(); }
auto fields_of(const TransposedStorage&) { return std::tuple<>(); }
auto fields_of(const ScaledStorage& s) { return std::tie(s.scale, s.block_rows, s.block_cols); }
auto fields_of(const StridedStorage& s) { return std::tie(s.tensor_shape, s.offset, s.row_stride, s.col_stride); }
auto fields_of(const PackedStorage& s) { return std::tie(s.tensor_shape, s.offset, s.row_stride, s.content, s.dtype); }
auto fields_of(const NibbleStorage& s) {
  return std::tie(s.rows, s.cols, s.transposed, s.packed_dim, s.interleaved, s.pairs, s.add, s.block, s.step, s.shape);
}
auto fields_of(const GridStorage& s) {
  return std::tie(s.rows, s.cols, s.block_rows, s.block_cols, s.step_rows, s.step_cols, s.transposed, s.reciprocal,
                  s.exponents);
}
auto fields_of(const RoundedStorage& s) {
  return std::tuple_cat(fields_of(s.numbers),
                        std::tie(s.rows, s.cols, s.rounding, s.content, s.step_rows, s.step_cols));
}
auto fields_of(const BlockStorage& s) { return std::tie(s.type, s.rows, s.cols, s.content); }
auto fields_of(const IndexStorage& s) { return std::tie(s.limit); }

bool same_storage(const Storage& a, const Storage& b) {
  return a.index() == b.index() &&
         std::visit([&](const auto& x) { return fields_of(x) == fields_of(std::get<std::decay_t<decltype(x)>>(b)); },
                    a);
}

// Returns the slice's dimension, first index and number of indices. Returns {0, 0, -1} for every slice that contains
// the whole tensor, because such a slice can be written in several ways.
std::tuple<std::int64_t, std::int64_t, std::int64_t> range_of(const WeightPart& part) {
  const TensorSlice& slice = part.slice;
  const bool known_dim = slice.dim >= 0 && slice.dim < std::ssize(part.shape);
  const bool all = known_dim && slice.begin == 0 && slice.size == part.shape[static_cast<std::size_t>(slice.dim)];
  if (all || slice.size < 0) return {0, 0, -1};
  return {slice.dim, slice.begin, slice.size};
}

bool same_part(const WeightPart& a, const WeightPart& b) {
  return a.tensor == b.tensor && a.shape == b.shape && range_of(a) == range_of(b) &&
         same_storage(a.storage, b.storage) && a.padded == b.padded;
}

bool same(const WeightSpec& a, const WeightSpec& b) {
  return a.type == b.type && std::ranges::equal(a.parts, b.parts, same_part) && a.constant == b.constant;
}

// Describes a weight for an error message, for example "f32[256, 64] of model.embed_tokens.weight (plain) from 256 of
// dimension 0".
std::string describe(const WeightSpec& spec) {
  std::vector<std::string> parts;
  for (const WeightPart& part : spec.parts) {
    const auto [dim, begin, size] = range_of(part);
    parts.push_back(
        fmt::format("{} ({}) from {} of dimension {}", part.tensor, kLayouts[part.storage.index()], begin, dim));
  }
  return fmt::format("{}{}{}", spec.type.to_string(), parts.empty() ? "" : " of ", fmt::join(parts, ", "));
}

}  // namespace

Status join_weights(const std::string& graph, std::vector<WeightSpec> more, std::vector<WeightSpec>& weights) {
  for (WeightSpec& spec : more) {
    const auto known = std::ranges::find(weights, spec.name, &WeightSpec::name);
    if (known == weights.end()) {
      weights.push_back(std::move(spec));
    } else if (!same(*known, spec)) {
      return internal_error(
          fmt::format("the weight {} is {} in the {} and {} in a graph before it; it must be the same, "
                      "as it is loaded once (look_up() of layers/head.h slices as the head does)",
                      spec.name, describe(spec), graph, describe(*known)));
    }
  }
  return ok_status();
}

}  // namespace tessera
