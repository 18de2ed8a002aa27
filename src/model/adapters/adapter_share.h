// Cuts out the part of a low-rank adapter that one rank of a model needs: the required rows and columns of A and B for
// each linear. The part lies in host memory, and AdapterTables::write() (runner/adapters/adapter_tables.h) copies its
// matrices to a slot of the device's tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/adapters/adapter_layout.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {

// A module's matrices in the layout of the adapter's file: either A and B, or the tensor of a matrix that replaces the
// module's own matrix. Tensors borrow from the file or from `values`, so the object can be moved but not copied.
struct AdapterMatrices {
  AdapterMatrices() = default;
  AdapterMatrices(AdapterMatrices&&) = default;
  AdapterMatrices& operator=(AdapterMatrices&&) = default;

  std::int64_t rank = 0;
  double scale = 1;
  StoredTensor a;             // [rank, cols of the module]
  StoredTensor b;             // [rows of the module, rank]
  std::vector<float> values;  // the elements of A and B, if they are cut out of a stack of experts
  // A tensor of the adapter's open file: [rows, cols], or [cols, rows] for an embedding. Null if A and B are set.
  const StoredTensor* whole = nullptr;
};

// The change that an adapter makes to one linear of a rank. The elements of A and B have type AdapterLayout::dtype().
struct AdapterLinearPart {
  // [modules]: the LoRA rank of each module. If a whole matrix replaces the module's matrix, the element is the
  // linear's number of rows. If the adapter does not change the module, the element is 0.
  std::vector<std::int32_t> ranks;
  std::vector<float> scales;   // [modules]: factors of B · A, multiplied by AdaptableLinear::factor
  std::int64_t most_rank = 0;  // the largest of `ranks`; 0 if the adapter does not change the linear
  // Where the A matrices begin in AdapterShare::bytes(). The matrices A [rank, cols of the linear] of all modules
  // follow one another. A whole matrix takes the place of A: [rows, cols] or, for an embedding, [cols, rows].
  std::size_t a_offset = 0;
  // Where the linear's B begins in AdapterShare::bytes(). It is stored transposed, [most_rank, rows of the linear],
  // with zeros beyond a module's rank. If there is a whole matrix, there is no B.
  std::size_t b_offset = 0;
};

// Immutable. The device allocates the share's host memory, so the device must outlive the share. The memory is pinned
// if the device supports that.
class AdapterShare {
 public:
  // The matrices of each linear's modules; null for a module that the adapter does not change.
  using OfModules = std::vector<std::vector<const AdapterMatrices*>>;  // [linears][modules]
  // Cuts the values that rank `rank` needs out of `matrices`, and rounds them to AdapterLayout::dtype(). Returns
  // invalid_argument if a value is not finite afterwards.
  static Result<AdapterShare> cut(const AdapterLayout& layout, std::size_t rank, const OfModules& matrices,
                                  Device& device);
  // Copies a share that another process cut for the same layout and rank. Returns kDataLoss if its sizes do not fit the
  // layout.
  static Result<AdapterShare> copy(const AdapterLayout& layout, std::vector<AdapterLinearPart> linears,
                                   std::span<const std::byte> bytes, Device& device);

  std::span<const AdapterLinearPart> linears() const { return linears_; }  // one element for each linear of the rank
  std::span<const std::byte> bytes() const {
    return memory_ == nullptr ? std::span<const std::byte>() : std::span<const std::byte>(memory_->data(), size_);
  }

 private:
  // Computes the offsets in `linears` from the linears' LoRA ranks, and allocates the memory.
  static Result<AdapterShare> place(const std::vector<AdaptableLinear>& of_rank, ir::DType dtype,
                                    std::vector<AdapterLinearPart> linears, Device& device);

  std::vector<AdapterLinearPart> linears_;
  std::unique_ptr<HostAllocation> memory_;  // null if the adapter changes no linear of the rank
  std::size_t size_ = 0;
};

}  // namespace tessera
