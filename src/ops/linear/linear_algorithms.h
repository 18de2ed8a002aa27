// Keeps, for each linear problem, the algorithm that a library chose in this process or in an earlier one. A kept
// algorithm saves the search, and gives the same bits as in the process that chose it. Algorithms are opaque data,
// which only the same version of the library understands.
//
// A library's first choice is an estimate. In idle moments other algorithms are measured (linear_tuning.h), and the
// fastest is kept for later processes. In this process a problem keeps its first algorithm, so its bits do not change.
//
// Forwards without a CUDA graph may have any number of rows, so the number of problems needs a limit, which is kMost.
// Problems of this process take precedence over problems of earlier processes.
//
// The class is thread-safe.
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
  static constexpr std::size_t kMost = 8192;  // maximum number of kept problems; one takes about 170 bytes of JSON

  // Returns the algorithm that this process chose, or else the one that an earlier process chose. An earlier process's
  // algorithm may not fit the problem, so the caller must let the library check it.
  std::optional<OpaqueAlgorithm> chosen(const LinearShape& shape) const;
  // Keeps the algorithm that this process uses: a new choice, or an earlier process's choice that passed the library's
  // check.
  void note(const LinearShape& shape, const OpaqueAlgorithm& algorithm);

  // Returns a problem from note() that was not measured yet, and its algorithm. Each problem is returned at most once.
  // Problems whose type does not have 16 bits, and problems with `any_rows`, are never returned.
  std::optional<std::pair<LinearShape, OpaqueAlgorithm>> take_unmeasured();
  // Keeps the algorithm that was measured to be the fastest, for later processes.
  void improve(const LinearShape& shape, const OpaqueAlgorithm& algorithm);

  // Returns one entry for each known problem: [["bf16", m, n, k, bias, any_rows, "<128 hexadecimal digits>", measured],
  // …]. The algorithm comes from improve(), else from note(), else from remember().
  Json to_json() const;
  // Loads the algorithms of an earlier process. `json` is what to_json() returned in that process. If it is anything
  // else, the function returns kDataLoss and loads nothing.
  Status remember(const Json& json);
  // Makes to_json() also return the algorithms that another process measured. `json` is what to_json() returned in that
  // process. This process itself does not use these algorithms. Returns the same errors as remember().
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
