// A tower's static inputs: patches in memory of their own, and the lists of where they lie in a step buffer. Each has
// one place for every size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/image/patches.h"
#include "tessera/ir/graph.h"
#include "tessera/model/config/vision_config.h"
#include "tessera/ops/contract/step_buffer.h"
#include "tessera/piecewise/external_values.h"
#include "tessera/runner/vision/patch_layout.h"

namespace tessera {

// The sizes of a forward of so many patches.
ir::Bucket vision_bucket(std::int64_t patches);

class VisionInputs {
 public:
  // For the inputs of `tower`, of up to `max_patches`. Reserves its share of `step`, which outlives it and is allocated
  // before anything is staged.
  static Result<std::unique_ptr<VisionInputs>> create(const ir::Graph& tower, const VisionConfig& config,
                                                      std::int64_t max_patches, Device& device, StepBuffer& step);

  // What it takes of the device's memory, its share of the step buffer included.
  static Result<std::int64_t> bytes_needed(const ir::Graph& tower, std::int64_t max_patches);

  void add_to(ExternalValues& externals) const;
  std::int64_t bytes() const { return bytes_; }

  // Images one after another, then padding up to `size` patches. Uploads the patches, which the worker threads order
  // and convert, and which were read when it returns; the step buffer's next upload carries the lists. Padding's
  // patches keep what they had. Precondition: the images fit and are such as the tower takes.
  Status stage(std::span<const Patches* const> images, std::int64_t size, Stream& stream);

 private:
  // A list of 4-byte values.
  struct List {
    std::string_view name;
    std::size_t offset;  // in the step buffer
  };

  // Merge units on their way to the device, in host memory that it copies from by itself.
  struct Slice {
    std::unique_ptr<HostAllocation> memory;
    std::unique_ptr<Event> uploaded;
    bool in_flight = false;  // `uploaded` was recorded and not yet waited for
  };

  VisionInputs(const VisionConfig& config, ir::DType dtype, StepBuffer& step)
      : config_(config), dtype_(dtype), step_(step) {}
  void write_list(std::string_view name, const void* values, std::size_t bytes);
  Status allocate_slices(Device& device);
  Status upload_patches(std::span<const Patches* const> images, Stream& stream);

  VisionConfig config_;
  ir::DType dtype_;
  std::int64_t bytes_ = 0;
  StepBuffer& step_;
  std::vector<List> lists_;
  std::unique_ptr<Allocation> patches_;
  PatchLayout layout_;
  std::array<Slice, 4> slices_;  // filled in turn
  std::size_t next_slice_ = 0;
};

}  // namespace tessera
