#include "tessera/ops/linear/linear_algorithms.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

constexpr std::size_t kDigits = 16;  // hexadecimal digits of a 64-bit word

std::string hex(const OpaqueAlgorithm& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<OpaqueAlgorithm> from_hex(std::string_view text) {
  OpaqueAlgorithm algorithm{};
  if (text.size() != kDigits * algorithm.size()) return std::nullopt;
  for (std::size_t i = 0; i < algorithm.size(); ++i) {
    const char* first = text.data() + kDigits * i;
    const auto [end, error] = std::from_chars(first, first + kDigits, algorithm[i], 16);
    if (error != std::errc() || end != first + kDigits) return std::nullopt;
  }
  return algorithm;
}

}  // namespace

std::optional<std::pair<LinearShape, LinearAlgorithms::Kept>> LinearAlgorithms::entry_of(const Json& json) {
  if (!json.is_array() || json.as_array().size() != 8) return std::nullopt;
  const Json::Array& e = json.as_array();
  const bool typed = e[0].is_string() && e[1].is_int() && e[2].is_int() && e[3].is_int() && e[4].is_bool() &&
                     e[5].is_bool() && e[6].is_string() && e[7].is_bool();
  if (!typed) return std::nullopt;
  const std::optional<ir::DType> dtype = ir::parse_dtype(e[0].as_string());
  const std::optional<OpaqueAlgorithm> algorithm = from_hex(e[6].as_string());
  const LinearShape shape{.m = e[1].as_int(),
                          .n = e[2].as_int(),
                          .k = e[3].as_int(),
                          .dtype = dtype.value_or(ir::DType::kFloat32),
                          .bias = e[4].as_bool(),
                          .any_rows = e[5].as_bool()};
  if (!dtype || !algorithm || shape.m < 1 || shape.n < 1 || shape.k < 1) return std::nullopt;
  return std::pair(shape, Kept{.algorithm = *algorithm, .measured = e[7].as_bool()});
}

std::optional<OpaqueAlgorithm> LinearAlgorithms::chosen(const LinearShape& shape) const {
  const std::lock_guard lock(mutex_);
  if (const auto it = noted_.find(shape); it != noted_.end()) return it->second;
  const auto it = remembered_.find(shape);
  return it == remembered_.end() ? std::nullopt : std::optional(it->second.algorithm);
}

void LinearAlgorithms::note(const LinearShape& shape, const OpaqueAlgorithm& algorithm) {
  const std::lock_guard lock(mutex_);
  if (noted_.size() < kMost || noted_.contains(shape)) noted_[shape] = algorithm;
}

bool LinearAlgorithms::was_measured(const LinearShape& shape, const OpaqueAlgorithm& algorithm) const {
  const auto it = remembered_.find(shape);
  return it != remembered_.end() && it->second.measured && it->second.algorithm == algorithm;
}

std::optional<std::pair<LinearShape, OpaqueAlgorithm>> LinearAlgorithms::take_unmeasured() {
  const std::lock_guard lock(mutex_);
  for (const auto& [shape, algorithm] : noted_) {
    if (shape.any_rows || ir::dtype_size(shape.dtype) != 2) continue;
    if (improved_.contains(shape) || was_measured(shape, algorithm) || !taken_.insert(shape).second) continue;
    return std::pair(shape, algorithm);
  }
  return std::nullopt;
}

void LinearAlgorithms::improve(const LinearShape& shape, const OpaqueAlgorithm& algorithm) {
  const std::lock_guard lock(mutex_);
  improved_[shape] = algorithm;
}

Json LinearAlgorithms::to_json() const {
  const std::lock_guard lock(mutex_);
  std::map<LinearShape, Kept> known;
  for (const auto& [shape, algorithm] : improved_) known[shape] = {.algorithm = algorithm, .measured = true};
  for (const auto& [shape, algorithm] : noted_)
    known.insert({shape, {.algorithm = algorithm, .measured = was_measured(shape, algorithm)}});
  for (auto it = remembered_.begin(); it != remembered_.end() && known.size() < kMost; ++it) known.insert(*it);
  Json all = Json::array();
  for (const auto& [s, kept] : known)
    all.push_back(
        Json::Array{ir::dtype_name(s.dtype), s.m, s.n, s.k, s.bias, s.any_rows, hex(kept.algorithm), kept.measured});
  return all;
}

Result<std::map<LinearShape, LinearAlgorithms::Kept>> LinearAlgorithms::read(const Json& json) {
  if (!json.is_array()) return data_loss("the algorithms of linears must be a JSON array");
  std::map<LinearShape, Kept> read;
  for (const Json& item : json.as_array()) {
    auto entry = entry_of(item);
    if (!entry) return data_loss(fmt::format("an entry does not hold the algorithm of a linear: {}", item.dump()));
    read.insert(*std::move(entry));
  }
  return read;
}

Status LinearAlgorithms::remember(const Json& json) {
  std::map<LinearShape, Kept> kept = TRY(read(json));
  const std::lock_guard lock(mutex_);
  remembered_ = std::move(kept);
  return ok_status();
}

Status LinearAlgorithms::learn(const Json& json) {
  const std::map<LinearShape, Kept> there = TRY(read(json));
  const std::lock_guard lock(mutex_);
  for (const auto& [shape, kept] : there)
    if (kept.measured && improved_.size() < kMost) improved_.try_emplace(shape, kept.algorithm);
  return ok_status();
}

}  // namespace tessera
