// What one rank of a model holds of a low-rank adapter: for each linear of the rank the parts of A and B that it needs,
// in host memory and in the form in which they are copied to a slot of the device's tables
// (runner/adapters/adapter_tables.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/adapters/adapter_layout.h"

namespace tessera {

// A module's whole matrices as floats, as the adapter's file has them.
struct AdapterMatrices {
  std::int64_t rank = 0;
  double scale = 0;
  std::vector<float> a;  // [rank, cols of the module]
  std::vector<float> b;  // [rows of the module, rank]
};

// What an adapter adds to one linear of a rank. Matrices have the layout's type.
struct AdapterLinearPart {
  std::vector<std::int32_t> ranks;  // [modules]; 0: the adapter does not change the module
  std::vector<float> scales;        // [modules]
  std::int64_t most_rank = 0;       // the largest of `ranks`; 0: nothing is added
  std::size_t a_offset = 0;         // in AdapterShare::bytes(): for each module in order [rank, cols of the linear]
  std::size_t b_offset = 0;         // [most_rank, rows of the linear]: B transposed; zeros behind a module's rank
};

// Immutable. Its memory is pinned where the device has such memory, so the device must outlive it.
class AdapterShare {
 public:
  // The matrices of each linear's modules; null for a module that the adapter does not change.
  using OfModules = std::vector<std::vector<const AdapterMatrices*>>;  // [linears][modules]
  // Cuts the share of rank `rank` out of whole matrices, and rounds it to the layout's type.
  static Result<AdapterShare> cut(const AdapterLayout& layout, std::size_t rank, const OfModules& matrices,
                                  Device& device);
  // Copies a share that another process has cut for this layout's rank. kDataLoss if it is not of the layout's form.
  static Result<AdapterShare> copy(const AdapterLayout& layout, std::vector<AdapterLinearPart> linears,
                                   std::span<const std::byte> bytes, Device& device);

  std::span<const AdapterLinearPart> linears() const { return linears_; }  // [the rank's linears]
  std::span<const std::byte> bytes() const {
    return memory_ == nullptr ? std::span<const std::byte>() : std::span<const std::byte>(memory_->data(), size_);
  }

 private:
  // Sets the offsets and the memory of parts whose ranks are known.
  static Result<AdapterShare> place(const std::vector<AdaptableLinear>& of_rank, ir::DType dtype,
                                    std::vector<AdapterLinearPart> linears, Device& device);

  std::vector<AdapterLinearPart> linears_;
  std::unique_ptr<HostAllocation> memory_;  // null: the adapter changes no linear of the rank
  std::size_t size_ = 0;
};

}  // namespace tessera
