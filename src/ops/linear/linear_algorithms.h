// Keeps, for each linear problem, the algorithm that a library chose in this process or in an earlier one. A kept
// algorithm saves the search and gives the same bits. Algorithms are opaque data, which only the same version of the
// library understands.
//
// A library's first choice is an estimate. In idle moments other algorithms are measured (linear_tuning.h), and the
// fastest is kept for later processes. In this process a problem keeps its first algorithm, so its bits do not change.
//
// Eager forwards may have any number of rows, so at most kMost problems are kept. Problems of this process take
// precedence.
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
  bool any_rows = false;  // the algorithm was chosen for every m, not for this m alone
  friend auto operator<=>(const LinearShape&, const LinearShape&) = default;
};

class LinearAlgorithms {
 public:
  static constexpr std::size_t kMost = 8192;  // limit of kept problems; each takes about 170 bytes of JSON

  // Returns the choice of this process, or else of an earlier one. The caller must let the library check an earlier
  // process's choice against the problem.
  std::optional<OpaqueAlgorithm> chosen(const LinearShape& shape) const;
  // Keeps the algorithm that this process uses: a new choice, or an earlier process's choice that passed the library's
  // check.
  void note(const LinearShape& shape, const OpaqueAlgorithm& algorithm);

  // Returns a noted problem that nobody has measured, and its algorithm. It returns only problems of 16-bit types that
  // were noted for one m, each once.
  std::optional<std::pair<LinearShape, OpaqueAlgorithm>> take_unmeasured();
  // Keeps the algorithm that was measured to be the fastest, for later processes.
  void improve(const LinearShape& shape, const OpaqueAlgorithm& algorithm);

  // Returns the improved algorithms, the noted ones, and those that remember() loaded for other problems: [["bf16", m,
  // n, k, bias, any_rows, "<128 hexadecimal digits>", measured], …].
  Json to_json() const;
  // Loads the algorithms of an earlier process. `json` is the result of its to_json(). Returns kDataLoss for any other
  // content, and then loads nothing.
  Status remember(const Json& json);
  // Adds the measured algorithms of another process's to_json() to this process's to_json(). This process itself does
  // not use them. Returns the errors of remember().
  Status learn(const Json& json);

 private:
  struct Kept {
    OpaqueAlgorithm algorithm{};
    bool measured = false;
  };
  static std::optional<std::pair<LinearShape, Kept>> entry_of(const Json& json);
  static Result<std::map<LinearShape, Kept>> read(const Json& json);
  // Returns whether an earlier process measured this algorithm to be the fastest.
  bool was_measured(const LinearShape& shape, const OpaqueAlgorithm& algorithm) const;

  mutable std::mutex mutex_;
  std::map<LinearShape, OpaqueAlgorithm> noted_;
  std::map<LinearShape, OpaqueAlgorithm> improved_;
  std::set<LinearShape> taken_;
  std::map<LinearShape, Kept> remembered_;
};

}  // namespace tessera
