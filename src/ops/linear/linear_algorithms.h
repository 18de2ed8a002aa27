// The algorithms that a library chose for linears, by problem: in this process, and in earlier ones. A remembered
// algorithm saves the search and gives the same bits again. Algorithms are opaque: only the library knows what they
// mean, and only in the same version.
//
// A library's first choice is its estimate. When there is time others are measured (linear_tuning.h), and the fastest
// is kept for later processes: in this one a problem keeps the algorithm, and so the bits, that it began with.
//
// Eager forwards may have any number of rows, so at most kMost problems are kept; those of this process come first.
//
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

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
  static constexpr std::size_t kMost = 8192;  // each about 170 bytes of JSON

  // The choice of this process, else of an earlier one. That is not trusted: the library checks it against the problem.
  std::optional<OpaqueAlgorithm> chosen(const LinearShape& shape) const;
  // Keeps an algorithm that was chosen, or that was remembered and passed the library's check.
  void note(const LinearShape& shape, const OpaqueAlgorithm& algorithm);

  // A noted problem of 16-bit types and one m whose algorithm nobody has measured, and what is noted for it. It is
  // given out once.
  std::optional<std::pair<LinearShape, OpaqueAlgorithm>> take_unmeasured();
  // The fastest one as measured, for later processes.
  void improve(const LinearShape& shape, const OpaqueAlgorithm& algorithm);

  // The improved algorithms, the noted ones, and the remembered ones of other problems: [["bf16", m, n, k, bias,
  // any_rows, "<128 hexadecimal digits>", measured], …].
  Json to_json() const;
  // Remembers the result of another process's to_json(). kDataLoss for anything else, and then nothing is remembered.
  Status remember(const Json& json);
  // The same of what was measured meanwhile, for later processes.
  Status learn(const Json& json);

 private:
  struct Kept {
    OpaqueAlgorithm algorithm{};
    bool measured = false;
  };
  static std::optional<std::pair<LinearShape, Kept>> entry_of(const Json& json);
  static Result<std::map<LinearShape, Kept>> read(const Json& json);
  // Whether it is what an earlier process measured to be the fastest.
  bool was_measured(const LinearShape& shape, const OpaqueAlgorithm& algorithm) const;

  mutable std::mutex mutex_;
  std::map<LinearShape, OpaqueAlgorithm> noted_;
  std::map<LinearShape, OpaqueAlgorithm> improved_;
  std::set<LinearShape> taken_;
  std::map<LinearShape, Kept> remembered_;
};

}  // namespace tessera
