// Checks the entries of an importance matrix against the tensors of a quantised model that will be written, and counts
// entries that are not used.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/gguf/importance_matrix.h"

namespace tessera {

class ImportanceUse {
 public:
  // `source` is the model's path, for messages. Borrows the matrix.
  ImportanceUse(const ImportanceMatrix& matrix, std::string source) : matrix_(matrix), source_(std::move(source)) {}

  // Returns invalid_argument, with the entry's name, if an entry has a name that is not in `names`.
  Status check_names(const std::set<std::string, std::less<>>& names) const;
  // Returns invalid_argument if the entry does not fit a tensor that contains `matrices` matrices of `cols` columns
  // each.
  Status check_sizes(const ImportanceEntry& entry, std::int64_t matrices, std::int64_t cols) const;
  // Returns the error for a layer's matrix that is written as `type` although it has no entry.
  Status missing(const std::string& tensor, std::string_view type) const;

  void add_used() { ++used_; }
  void add_unused(const std::string& entry) { unused_.add(entry, 1); }
  void add_without(const std::string& tensor) { without_.add(tensor, 1); }
  void add_unseen(const std::string& entry, std::int64_t matrices) { unseen_.add(entry, matrices); }

  bool is_used() const { return used_ > 0; }
  // Returns notes about three things: entries that are not used, tensors outside of the layers that have no entry, and
  // matrices that got no input from the text.
  std::vector<std::string> notes() const;

 private:
  // Counts tensors or entries, and keeps the name of the first one.
  struct Named {
    std::int64_t count = 0;
    std::string first{};

    void add(const std::string& name, std::int64_t number) {
      if (number > 0 && count == 0) first = name;
      count += number;
    }
  };

  const ImportanceMatrix& matrix_;
  std::string source_;
  std::int64_t used_ = 0;
  Named unused_;
  Named without_;
  Named unseen_;
};

}  // namespace tessera
