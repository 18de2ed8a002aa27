// Weights: which tensors of a checkpoint make up each weight of the graph, and their way to a device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/type.h"
#include "tessera/model/checkpoint.h"
#include "tessera/model/tensor_copy.h"

namespace tessera {

// One tensor of the checkpoint, or this rank's slice of it.
struct WeightPart {
  std::string tensor;               // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // of the whole tensor
  TensorSlice slice;
};

// A weight of the graph: parts one below the other (q, k and v are one matrix here), or constants
// that the config determines.
struct WeightSpec {
  enum class Init : std::uint8_t { kUniform, kOnes };

  std::string name;  // in the graph
  ir::Type type;     // constant shape, of this rank
  std::vector<WeightPart> parts;
  std::vector<float> constant;       // float32 values where there are no parts
  Init dummy_init = Init::kUniform;  // what --load-format dummy fills it with: norms get ones
};

// All weights in one allocation. Addresses are fixed for the object's life.
class Weights {
 public:
  // Copies every part, converted to the weight's type; a missing, misshapen or mistyped tensor is an
  // error that names it. A progress bar on standard error where `show_progress`.
  static Result<Weights> load(std::span<const WeightSpec> specs, const Checkpoint& checkpoint, Device& device,
                              bool show_progress);
  // Random content from `seed` alone (`--load-format dummy`).
  static Result<Weights> make_dummy(std::span<const WeightSpec> specs, std::uint64_t seed, Device& device,
                                    bool show_progress);

  const std::map<std::string, std::byte*, std::less<>>& addresses() const { return addresses_; }
  std::int64_t total_bytes() const { return static_cast<std::int64_t>(memory_->size()); }

 private:
  template <class FillPart>
  static Result<Weights> fill(std::span<const WeightSpec> specs, Device& device, bool show_progress,
                              const FillPart& fill_part);

  std::unique_ptr<Allocation> memory_;
  std::map<std::string, std::byte*, std::less<>> addresses_;
};

}  // namespace tessera
