#include "tessera/model/quantise/tensor_importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/model/gguf/tensor_names.h"
#include "tessera/model/quantise/importance_use.h"
#include "tessera/ops/quantised/blocks/quantise.h"

namespace tessera {
namespace {

constexpr double kLeastImportance = 1e-3;  // the least importance of a column, as a share of the mean

// Returns whether the tensor's bytes are copied, so that nothing is rounded.
bool is_copied(const GgufSourceTensor& tensor, BlockType type) {
  return tensor.rows != nullptr && tensor.stored == type;
}

// Returns whether the tensor belongs to one of the layers that a forward runs. Next-token layers come after these
// layers.
bool is_of_layer(const GgufSourceTensor& tensor, const GgufContent& content) {
  const std::optional<std::int64_t> layer = parse_tensor_name(tensor.name).layer;
  return layer && *layer < content.layers - content.draft_layers;
}

class ImportanceChooser {
 public:
  ImportanceChooser(const GgufContent& content, std::span<const BlockType> types, const ImportanceMatrix& matrix)
      : content_(content), types_(types), matrix_(matrix), use_(matrix, content.source) {}

  Result<OutputImportance> choose() {
    std::set<std::string, std::less<>> names;
    for (const GgufSourceTensor& tensor : content_.tensors) names.insert(tensor.name);
    TRY(use_.check_names(names));
    OutputImportance chosen;
    for (std::size_t i = 0; i < content_.tensors.size(); ++i)
      chosen.tensors.push_back(TRY(of_tensor(content_.tensors[i], types_[i])));
    if (!use_.is_used())
      return invalid_argument(
          fmt::format("{}: no tensor of {} uses an importance matrix in this type; accepted: types with Q4_0 to Q5_1, "
                      "K types or IQ4",
                      matrix_.source, content_.source));
    chosen.notes = use_.notes();
    return chosen;
  }

 private:
  Result<TensorImportance> of_tensor(const GgufSourceTensor& tensor, BlockType type) {
    const ImportanceEntry* const entry = matrix_.find(tensor.name);
    const bool uses = uses_importance(type) && !is_copied(tensor, type);
    if (entry == nullptr) {
      if (!uses) return TensorImportance();
      if (is_of_layer(tensor, content_)) return use_.missing(tensor.name, block_type_info(type).name);
      use_.add_without(tensor.name);
      return TensorImportance();
    }
    const std::int64_t cols = tensor.shape.back();
    const std::int64_t rows = tensor.shape.size() > 1 ? tensor.shape[tensor.shape.size() - 2] : 1;
    TRY(use_.check_sizes(*entry, tensor.elements() / (rows * cols), cols));
    if (!uses) {
      use_.add_unused(tensor.name);
      return TensorImportance();
    }
    use_.add_used();
    TensorImportance importance(*entry, rows, cols);
    use_.add_unseen(tensor.name, importance.num_unseen());
    return importance;
  }

  const GgufContent& content_;
  std::span<const BlockType> types_;
  const ImportanceMatrix& matrix_;
  ImportanceUse use_;
};

}  // namespace

TensorImportance::TensorImportance(const ImportanceEntry& entry, std::int64_t rows, std::int64_t cols)
    : rows_(rows), cols_(cols), numbers_(entry.sums) {
  const auto matrices = std::ssize(numbers_) / cols;
  for (std::int64_t m = 0; m < matrices; ++m) {
    const std::span<float> of_matrix =
        std::span(numbers_).subspan(static_cast<std::size_t>(m * cols), static_cast<std::size_t>(cols));
    const double sum = std::accumulate(of_matrix.begin(), of_matrix.end(), 0.0);
    const float count = entry.counts[entry.counts.size() == 1 ? 0 : static_cast<std::size_t>(m)];
    seen_.push_back(count > 0 && sum > 0);
    if (!seen_.back()) continue;
    const double mean = sum / static_cast<double>(cols);
    for (float& number : of_matrix) number = static_cast<float>(std::max(number / mean, kLeastImportance));
  }
}

const float* TensorImportance::of_row(std::int64_t row) const {
  const auto matrix = static_cast<std::size_t>(row / rows_);
  if (matrix >= seen_.size() || !seen_[matrix]) return nullptr;
  return numbers_.data() + matrix * static_cast<std::size_t>(cols_);
}

std::int64_t TensorImportance::num_unseen() const { return std::ranges::count(seen_, false); }

Result<OutputImportance> choose_importance(const GgufContent& content, std::span<const BlockType> types,
                                           const ImportanceMatrix& matrix) {
  return ImportanceChooser(content, types, matrix).choose();
}

}  // namespace tessera
