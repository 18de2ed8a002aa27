// Holds the static inputs of a vision tower in device memory. The patches have an allocation of their own. The index
// lists that describe where the patches lie are in the step buffer, which is uploaded to the device for each forward
// (step_buffer.h). Each input has the same address at all sizes.
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

// Returns the values of the graph's symbols for a forward of `patches` patches.
ir::Bucket vision_bucket(std::int64_t patches);

class VisionInputs {
 public:
  // Creates the inputs of `tower` for up to `max_patches`. Reserves memory for the lists in `step`, which must outlive
  // this object. The caller must allocate `step` before it stages anything.
  static Result<std::unique_ptr<VisionInputs>> create(const ir::Graph& tower, const VisionConfig& config,
                                                      std::int64_t max_patches, Device& device, StepBuffer& step);

  // Returns the bytes of device memory that the inputs take, including their part of the step buffer.
  static Result<std::int64_t> bytes_needed(const ir::Graph& tower, std::int64_t max_patches);

  void add_to(ExternalValues& externals) const;
  std::int64_t bytes() const { return bytes_; }

  // Stages images one after another, then padding up to `size` patches. Worker threads reorder and convert the patches,
  // and stage() uploads them. The caller may reuse `images` when stage() returns. The step buffer's next upload
  // transfers the lists. Padding patches keep the values of earlier forwards. Precondition: the images fit, and check()
  // accepts them.
  Status stage(std::span<const Patches* const> images, std::int64_t size, Stream& stream);

 private:
  // A list of 4-byte values.
  struct List {
    std::string_view name;
    std::size_t offset;  // offset in the step buffer
  };

  // A buffer for uploading merge units (squares of patches that become one token). It lies in host memory from which
  // the device can copy asynchronously.
  struct Slice {
    std::unique_ptr<HostAllocation> memory;
    std::unique_ptr<Event> uploaded;
    bool in_flight = false;  // whether `uploaded` was recorded and not yet waited for
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
  std::array<Slice, 4> slices_;  // used in turn
  std::size_t next_slice_ = 0;
};

}  // namespace tessera
