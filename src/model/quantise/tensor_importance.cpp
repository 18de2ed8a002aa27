#include "tessera/model/quantise/tensor_importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/model/gguf/tensor_names.h"
#include "tessera/ops/quantised/blocks/quantise.h"

namespace tessera {
namespace {

constexpr double kLeastImportance = 1e-3;  // as a share of the mean

// A number of tensors or entries, and the name of the first, for notes.
struct Named {
  std::int64_t count = 0;
  std::string first{};

  void add(const std::string& name, std::int64_t number = 1) {
    if (count == 0) first = name;
    count += number;
  }
};

// Returns whether the tensor's bytes are copied, so that nothing is rounded.
bool is_copied(const GgufSourceTensor& tensor, BlockType type) {
  return tensor.rows != nullptr && tensor.stored == type;
}

// Returns whether the tensor belongs to one of the layers that a forward runs. Next-token layers come after
// these.
bool is_of_layer(const GgufSourceTensor& tensor, const GgufContent& content) {
  const std::optional<std::int64_t> layer = parse_tensor_name(tensor.name).layer;
  return layer && *layer < content.layers - content.draft_layers;
}

class ImportanceChooser {
 public:
  ImportanceChooser(const GgufContent& content, std::span<const BlockType> types, const ImportanceMatrix& matrix)
      : content_(content), types_(types), matrix_(matrix) {}

  Result<OutputImportance> choose() {
    TRY(check_names());
    OutputImportance chosen;
    for (std::size_t i = 0; i < content_.tensors.size(); ++i)
      chosen.tensors.push_back(TRY(of_tensor(content_.tensors[i], types_[i])));
    if (used_ == 0)
      return invalid_argument(
          fmt::format("{}: no tensor of {} uses an importance matrix in this type; accepted: types with Q4_0 to Q5_1, "
                      "K types or IQ4",
                      matrix_.source, content_.source));
    chosen.notes = notes();
    return chosen;
  }

 private:
  Status check_names() const {
    std::set<std::string_view> names;
    for (const GgufSourceTensor& tensor : content_.tensors) names.insert(tensor.name);
    const auto unknown = std::ranges::find_if(
        matrix_.entries, [&](const ImportanceEntry& entry) { return !names.contains(entry.name); });
    if (unknown == matrix_.entries.end()) return ok_status();
    return invalid_argument(
        fmt::format("{}: entry {} is no tensor of {}; accepted: the importance matrix of this model", matrix_.source,
                    clip_text(Json(unknown->name).dump()), content_.source));
  }

  Result<TensorImportance> of_tensor(const GgufSourceTensor& tensor, BlockType type) {
    const ImportanceEntry* const entry = matrix_.find(tensor.name);
    const bool uses = uses_importance(type) && !is_copied(tensor, type);
    if (entry == nullptr) {
      if (!uses) return TensorImportance();
      if (is_of_layer(tensor, content_))
        return invalid_argument(
            fmt::format("{}: there is no entry for tensor {}, which becomes {}; accepted: an entry for each such "
                        "matrix of the layers",
                        matrix_.source, tensor.name, block_type_info(type).name));
      without_.add(tensor.name);
      return TensorImportance();
    }
    const std::int64_t cols = tensor.shape.back();
    const std::int64_t rows = tensor.shape.size() > 1 ? tensor.shape[tensor.shape.size() - 2] : 1;
    const std::int64_t matrices = tensor.elements() / (rows * cols);
    if (std::ssize(entry->sums) != matrices * cols ||
        (entry->counts.size() != 1 && std::ssize(entry->counts) != matrices))
      return invalid_argument(fmt::format(
          "{}: entry {} has {} sums and {} counts; accepted for this tensor: {} sums, {} counts", matrix_.source,
          tensor.name, entry->sums.size(), entry->counts.size(), matrices * cols, matrices));
    if (!uses) {
      unused_.add(tensor.name);
      return TensorImportance();
    }
    ++used_;
    TensorImportance importance(*entry, rows, cols);
    if (importance.num_unseen() > 0) unseen_.add(tensor.name, importance.num_unseen());
    return importance;
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    if (unused_.count > 0)
      notes.push_back(
          fmt::format("{} of {} entries of {} are not used, because their tensors are not rounded or have "
                      "types that ignore importances; the first is {}",
                      unused_.count, matrix_.entries.size(), matrix_.source, unused_.first));
    if (without_.count > 0)
      notes.push_back(
          fmt::format("{} of the tensors outside of the layers have no entry in {} and are rounded without "
                      "one; the first is {}",
                      without_.count, matrix_.source, without_.first));
    if (unseen_.count > 0)
      notes.push_back(
          fmt::format("{} matrices are rounded without importances, because the text of {} never gave them "
                      "an input; the first belong to {}",
                      unseen_.count, matrix_.source, unseen_.first));
    return notes;
  }

  const GgufContent& content_;
  std::span<const BlockType> types_;
  const ImportanceMatrix& matrix_;
  std::int64_t used_ = 0;
  Named unused_;
  Named without_;
  Named unseen_;
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
