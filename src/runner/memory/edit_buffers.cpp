#include "tessera/runner/memory/edit_buffers.h"

#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/model/model.h"
#include "tessera/model/sampler.h"

namespace tessera {
namespace {

constexpr std::int64_t kElementBytes = 4;  // bytes of one element; equal for all lists
constexpr auto kRows = static_cast<std::size_t>(kMaxChoiceRows);
static_assert(kMaxChoiceRows * kElementBytes % static_cast<std::int64_t>(kDeviceAlignment) == 0,
              "first, count and mask are one block, each aligned");

}  // namespace

EditBuffers::Layout EditBuffers::layout_of(std::int64_t vocab_size) {
  std::int64_t end = 0;
  const auto take = [&end](std::int64_t elements) {
    const std::int64_t offset = end;
    end += align_up(elements * kElementBytes);
    return offset;
  };
  Layout layout{};
  layout.rows = take(3 * kMaxChoiceRows);
  layout.ids = take(max_choice_edits(vocab_size));
  layout.penalties = take(max_choice_edits(vocab_size));
  layout.offsets = take(max_choice_edits(vocab_size));
  layout.masks = take(kMaxChoiceRows * ((vocab_size + 31) / 32));
  layout.targets = take(kMaxChoiceRows);
  layout.end = end;
  return layout;
}

std::int64_t EditBuffers::bytes_needed(std::int64_t vocab_size) { return layout_of(vocab_size).end; }

Result<EditBuffers> EditBuffers::create(Device& device, std::int64_t vocab_size) {
  EditBuffers buffers;
  buffers.layout_ = layout_of(vocab_size);
  buffers.vocab_size_ = vocab_size;
  buffers.rows_.resize(3 * kRows);
  buffers.memory_ = TRY(device.allocate(static_cast<std::size_t>(buffers.layout_.end), "logit edits"));
  return buffers;
}

void EditBuffers::add_to(ExternalValues& externals) const {
  const DeviceAddress base = memory_->data();
  const auto add = [&](std::string_view name, std::int64_t offset) { externals.add(std::string(name), base + offset); };
  add(input_names::kEditFirst, layout_.rows);
  add(input_names::kEditCount, layout_.rows + kMaxChoiceRows * kElementBytes);
  add(input_names::kEditMask, layout_.rows + 2 * kMaxChoiceRows * kElementBytes);
  add(input_names::kEditIds, layout_.ids);
  add(input_names::kEditPenalties, layout_.penalties);
  add(input_names::kEditOffsets, layout_.offsets);
  add(input_names::kEditMasks, layout_.masks);
  add(input_names::kLogprobTargets, layout_.targets);
}

std::int64_t EditBuffers::rows_that_fit(const LogitEdits& edits, std::int64_t first, std::int64_t most) const {
  if (edits.starts.empty()) return most;
  const auto begin = edits.starts.begin() + first;
  const std::int64_t end = *begin + max_choice_edits(vocab_size_);
  const auto past = std::upper_bound(begin + 1, begin + most + 1, end);
  return past - begin - 1;
}

Status EditBuffers::stage_edits(const LogitEdits& edits, std::int64_t first, std::int64_t rows,
                                std::int64_t padded_rows, Stream& stream) {
  std::fill_n(rows_.begin(), 2 * kRows, 0);
  std::fill_n(rows_.begin() + 2 * kRows, kRows, -1);
  std::int64_t first_edit = 0;
  std::int64_t count = 0;
  if (!edits.starts.empty()) {
    const std::int32_t* const starts = edits.starts.data() + first;
    first_edit = starts[0];
    count = starts[rows] - starts[0];
    for (std::int64_t r = 0; r < rows; ++r) {
      rows_[static_cast<std::size_t>(r)] = starts[r] - starts[0];
      rows_[kRows + static_cast<std::size_t>(r)] = starts[r + 1] - starts[r];
    }
  }
  const auto masked = std::lower_bound(edits.masked_rows.begin(), edits.masked_rows.end(), first);
  const auto masked_end = std::lower_bound(masked, edits.masked_rows.end(), first + rows);
  for (auto row = masked; row != masked_end; ++row)
    rows_[2 * kRows + static_cast<std::size_t>(*row - first)] = static_cast<std::int32_t>(row - masked);

  const DeviceAddress base = memory_->data();
  const auto upload = [&](std::int64_t offset, const void* from, std::int64_t elements) -> Status {
    if (elements == 0) return ok_status();
    return stream.upload(base + offset, from, static_cast<std::size_t>(elements * kElementBytes));
  };
  const std::int64_t words = (vocab_size_ + 31) / 32;
  TRY(upload(layout_.rows, rows_.data(), 2 * kMaxChoiceRows + padded_rows));
  TRY(upload(layout_.ids, edits.ids.data() + first_edit, count));
  TRY(upload(layout_.penalties, edits.penalties.data() + first_edit, count));
  TRY(upload(layout_.offsets, edits.offsets.data() + first_edit, count));
  return upload(layout_.masks, edits.masks.data() + (masked - edits.masked_rows.begin()) * words,
                (masked_end - masked) * words);
}

Status EditBuffers::stage_targets(DeviceAddress sampled, std::int64_t num_sampled, std::span<const TokenId> given,
                                  Stream& stream) {
  const DeviceAddress targets = memory_->data() + layout_.targets;
  if (num_sampled > 0) TRY(stream.copy(targets, sampled, static_cast<std::size_t>(num_sampled * kElementBytes)));
  if (given.empty()) return ok_status();
  return stream.upload(targets + num_sampled * kElementBytes, given.data(), given.size_bytes());
}

}  // namespace tessera
