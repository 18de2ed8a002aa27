#include "tessera/model/quantise/importance_use.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"

namespace tessera {

Status ImportanceUse::check_names(const std::set<std::string, std::less<>>& names) const {
  const auto unknown =
      std::ranges::find_if(matrix_.entries, [&](const ImportanceEntry& entry) { return !names.contains(entry.name); });
  if (unknown == matrix_.entries.end()) return ok_status();
  return invalid_argument(fmt::format("{}: entry {} is no tensor of {}; accepted: the importance matrix of this model",
                                      matrix_.source, clip_text(Json(unknown->name).dump()), source_));
}

Status ImportanceUse::check_sizes(const ImportanceEntry& entry, std::int64_t matrices, std::int64_t cols) const {
  if (std::ssize(entry.sums) == matrices * cols && (entry.counts.size() == 1 || std::ssize(entry.counts) == matrices))
    return ok_status();
  return invalid_argument(
      fmt::format("{}: entry {} has {} sums and {} counts; accepted for this tensor: {} sums, {} counts",
                  matrix_.source, entry.name, entry.sums.size(), entry.counts.size(), matrices * cols, matrices));
}

Status ImportanceUse::missing(const std::string& tensor, std::string_view type) const {
  return invalid_argument(fmt::format(
      "{}: there is no entry for tensor {}, which becomes {}; accepted: an entry for each such matrix of the layers",
      matrix_.source, tensor, type));
}

std::vector<std::string> ImportanceUse::notes() const {
  std::vector<std::string> notes;
  if (unused_.count > 0)
    notes.push_back(
        fmt::format("{} of {} entries of {} are not used, because their tensors are not rounded or have types that "
                    "ignore importances; the first is {}",
                    unused_.count, matrix_.entries.size(), matrix_.source, unused_.first));
  if (without_.count > 0)
    notes.push_back(
        fmt::format("{} of the tensors outside of the layers have no entry in {} and are rounded without "
                    "one; the first is {}",
                    without_.count, matrix_.source, without_.first));
  if (unseen_.count > 0)
    notes.push_back(
        fmt::format("{} matrices are rounded without importances, because the text of {} never gave them an input; the "
                    "first belong to {}",
                    unseen_.count, matrix_.source, unseen_.first));
  return notes;
}

}  // namespace tessera
