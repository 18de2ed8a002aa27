// A library's algorithms for linears, by problem: those that it chose in this process, and those of earlier processes,
// which spare it the question and give the same bits again. Opaque: what they mean is the library's, of one version.
//
// Eager forwards come in any number of rows: no more than kMost problems are kept, those of this process first.
//
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/ir/type.h"

namespace tessera {

using OpaqueAlgorithm = std::array<std::uint64_t, 8>;

struct LinearShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  ir::DType dtype = ir::DType::kFloat32;
  bool bias = false;
  bool any_rows = false;  // chosen for every m, not for this one alone
  friend auto operator<=>(const LinearShape&, const LinearShape&) = default;
};

class LinearAlgorithms {
 public:
  static constexpr std::size_t kMost = 8192;  // of some 170 bytes as JSON

  // Of an earlier process. Not to be trusted: the library checks it against the problem.
  std::optional<OpaqueAlgorithm> remembered(const LinearShape& shape) const;
  // Chosen, or remembered and found to be good.
  void note(const LinearShape& shape, const OpaqueAlgorithm& algorithm);

  // What was noted, and what is remembered of other problems: [["bf16", m, n, k, bias, any_rows, "<128 hexadecimal
  // digits>"], …].
  Json to_json() const;
  // Remembers what to_json() of another process gave. kDataLoss for anything else, of which nothing is remembered.
  Status remember(const Json& json);

 private:
  mutable std::mutex mutex_;
  std::map<LinearShape, OpaqueAlgorithm> noted_;
  std::map<LinearShape, OpaqueAlgorithm> remembered_;
};

}  // namespace tessera
