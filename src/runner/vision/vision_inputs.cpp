#include "tessera/runner/vision/vision_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "tessera/device/alignment.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/model/vision/towers.h"
#include "tessera/runner/host_floats.h"

namespace tessera {
namespace {

// Up to kSlice merge units (squares of patches that become one token) are converted and uploaded at a time. They are
// converted by at most one thread for every kUnitsPerThread merge units, rounded up, because a thread with less work is
// not worthwhile.
constexpr std::size_t kSlice = 128;
constexpr std::int64_t kUnitsPerThread = 16;

constexpr std::string_view kLists[] = {vision_inputs::kPatchPositions, vision_inputs::kImageRanges,
                                       vision_inputs::kWindowRanges,   vision_inputs::kTokenOrder,
                                       vision_inputs::kPositionRows,   vision_inputs::kPositionWeights};

}  // namespace

ir::Bucket vision_bucket(std::int64_t patches) {
  ir::Bucket bucket;
  bucket[ir::Symbol::kVisionRows] = patches;
  return bucket;
}

Result<std::int64_t> VisionInputs::bytes_needed(const ir::Graph& tower, std::int64_t max_patches) {
  std::int64_t bytes = 0;
  for (const ir::ValueId id : tower.inputs)
    bytes += align_up(TRY(ir::size_bytes(tower.value(id).type, vision_bucket(max_patches))));
  return bytes;
}

Result<std::unique_ptr<VisionInputs>> VisionInputs::create(const ir::Graph& tower, const VisionConfig& config,
                                                           std::int64_t max_patches, Device& device, StepBuffer& step) {
  const auto patches = std::ranges::find(tower.inputs, vision_inputs::kPatches,
                                         [&](ir::ValueId id) -> std::string_view { return tower.value(id).name; });
  if (patches == tower.inputs.end())
    return internal_error(fmt::format("the tower has no input \"{}\"", vision_inputs::kPatches));
  std::unique_ptr<VisionInputs> made(new VisionInputs(config, tower.value(*patches).type.dtype, step));
  made->bytes_ = TRY(bytes_needed(tower, max_patches));
  TRY(made->allocate_slices(device));
  for (const ir::ValueId id : tower.inputs) {
    const ir::Value& input = tower.value(id);
    const auto bytes = static_cast<std::size_t>(TRY(ir::size_bytes(input.type, vision_bucket(max_patches))));
    if (id == *patches) {
      made->patches_ = TRY(device.allocate(bytes, "patches"));
      continue;
    }
    const auto name = std::ranges::find(kLists, input.name);
    if (name == std::end(kLists)) return internal_error(fmt::format("no source for the tower's input {}", input.name));
    made->lists_.push_back({.name = *name, .offset = step.reserve(bytes)});
  }
  return made;
}

void VisionInputs::add_to(ExternalValues& externals) const {
  externals.add(std::string(vision_inputs::kPatches), patches_->data());
  for (const List& list : lists_) externals.add(std::string(list.name), step_.device_address(list.offset));
}

Status VisionInputs::stage(std::span<const Patches* const> images, std::int64_t size, Stream& stream) {
  layout_.clear();
  for (const Patches* image : images) append_image(image->grid, config_, layout_);
  TRY(upload_patches(images, stream));
  pad_layout(size, config_, layout_);
  const auto write = [&](std::string_view name, const auto& values) {
    write_list(name, values.data(), values.size() * sizeof(values[0]));
  };
  write(vision_inputs::kPatchPositions, layout_.positions);
  write(vision_inputs::kImageRanges, layout_.image_ranges);
  write(vision_inputs::kWindowRanges, layout_.window_ranges);
  write(vision_inputs::kTokenOrder, layout_.token_order);
  write(vision_inputs::kPositionRows, layout_.position_rows);
  write(vision_inputs::kPositionWeights, layout_.position_weights);
  return ok_status();
}

void VisionInputs::write_list(std::string_view name, const void* values, std::size_t bytes) {
  const auto list = std::ranges::find(lists_, name, &List::name);
  if (list == lists_.end() || bytes == 0) return;
  std::memcpy(step_.host(list->offset), values, bytes);
  step_.written(list->offset, bytes);
}

Status VisionInputs::allocate_slices(Device& device) {
  const auto unit_values = static_cast<std::size_t>(config_.merged_patches() * config_.patch_values());
  for (Slice& slice : slices_) {
    slice.memory = TRY(device.allocate_host(kSlice * unit_values * ir::dtype_size(dtype_), "patches"));
    slice.uploaded = TRY(device.create_event());
  }
  return ok_status();
}

// Reorders, converts and uploads the images' patches. Precondition: the layout describes these images, without padding.
Status VisionInputs::upload_patches(std::span<const Patches* const> images, Stream& stream) {
  const auto unit_values = static_cast<std::size_t>(config_.merged_patches() * config_.patch_values());
  const std::size_t unit_bytes = unit_values * ir::dtype_size(dtype_);
  std::size_t unit = 0;  // index over all images
  for (const Patches* image : images) {
    const std::size_t end = unit + static_cast<std::size_t>(image->tokens());
    while (unit < end) {
      Slice& slice = slices_[std::exchange(next_slice_, (next_slice_ + 1) % slices_.size())];
      if (slice.in_flight) TRY(slice.uploaded->synchronize());
      slice.in_flight = false;
      const std::size_t count = std::min(kSlice, end - unit);
      std::atomic<bool> failed = false;
      parallel_for(static_cast<std::int64_t>(count), kUnitsPerThread, [&](std::int64_t from, std::int64_t to) {
        for (auto i = static_cast<std::size_t>(from); i < static_cast<std::size_t>(to); ++i) {
          const float* const values =
              image->values.data() + static_cast<std::size_t>(layout_.units[unit + i]) * unit_values;
          if (!narrow_floats({values, unit_values}, dtype_, slice.memory->data() + i * unit_bytes).ok()) failed = true;
        }
      });
      if (failed) return internal_error("patches of a type that floats cannot be converted to");
      TRY(stream.upload(patches_->data() + unit * unit_bytes, slice.memory->data(), count * unit_bytes));
      TRY(stream.record(*slice.uploaded));
      slice.in_flight = true;
      unit += count;
    }
  }
  return ok_status();
}

}  // namespace tessera
