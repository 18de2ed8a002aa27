// Weights: which tensors of a checkpoint make up each weight of the graph, and their way to a device.
#pragma once

#include <cstdint>
#include <functional>
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

// Where the content of weights comes from: writes the elements `runs` of the part's tensor, converted to `dtype`, to
// `to`, which is exactly as long. Called from one thread.
using WeightSource = std::function<Status(const WeightSpec& spec, const WeightPart& part, StoredDtype dtype,
                                          const SliceRuns& runs, std::span<std::byte> to)>;
// A missing, misshapen or mistyped tensor is an error that names it.
WeightSource checkpoint_source(Checkpoint checkpoint);
// Random content from `seed` alone (`--load-format dummy`).
WeightSource dummy_source(std::uint64_t seed);

// All weights in one allocation. Addresses are fixed for the object's life: graphs may be captured before, or while,
// the content is filled in.
class Weights {
 public:
  using Addresses = std::map<std::string, std::byte*, std::less<>>;

  // Space for the weights, of undefined content.
  static Result<Weights> allocate(std::span<const WeightSpec> specs, Device& device);
  // allocate() and fill_weights().
  static Result<Weights> load(std::span<const WeightSpec> specs, const WeightSource& source, Device& device,
                              bool show_progress);

  const Addresses& addresses() const { return addresses_; }
  std::int64_t total_bytes() const { return static_cast<std::int64_t>(memory_->size()); }
  // For who fills the memory on a thread of its own, which may outlive this object.
  std::shared_ptr<const Allocation> memory() const { return memory_; }

 private:
  std::shared_ptr<Allocation> memory_;
  Addresses addresses_;
};

// Fills every weight at its address; the content is there when the call returns. May run on a thread of its own
// beside captures. A progress bar on standard error where `show_progress`.
Status fill_weights(std::span<const WeightSpec> specs, const Weights::Addresses& addresses, const WeightSource& source,
                    Device& device, bool show_progress);

}  // namespace tessera
