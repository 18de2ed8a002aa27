// Describes the linears of a model that low-rank adapters (LoRA) may change. A linear may combine several modules of
// the checkpoint: a qkv linear combines q_proj, k_proj and v_proj. Layers record their linears while the model is
// built. A layout contains the recorded linears that the options choose.
//
// In a model with tensor parallelism each rank has its own linears. A rank that holds some rows of a module's matrix
// takes these rows of B and all of A. A rank that holds some columns takes these columns of A and all of B. In the
// second case each rank computes only a partial sum of the adapter's change, as it does with the linear's own result.
// The all-reduce adds the partial sums of all ranks.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"

namespace tessera {

struct LinearPart;

// A matrix of the checkpoint, under the name that adapters use.
struct AdaptableModule {
  std::string name;            // "model.layers.0.self_attn.q_proj"
  std::int64_t rows = 0;       // rows of the whole matrix, and of B
  std::int64_t cols = 0;       // columns of the whole matrix, and of A
  std::int64_t expert = -1;    // index of the expert to which the matrix belongs; -1 if none
  std::int64_t stack_row = 0;  // first row in the expert's stacked matrix, which has gate above up
};

// A range of consecutive columns of a linear's result. Column i of the range is computed from row first_row + i of one
// module's matrix.
struct AdaptableRange {
  std::size_t module = 0;      // index into AdaptableLinear::modules
  std::int64_t first_row = 0;  // first row in the module's matrix
  std::int64_t rows = 0;
};

// One rank's linear, which maps x [T, cols] to [T, rows of all ranges], where T is the number of tokens. An embedding
// counts as a linear too. The rows of its x are one-hot, and its matrix is the transposed embedding table [hidden size,
// ids].
struct AdaptableLinear {
  std::string weight;  // name of the graph's value that holds the matrix or table
  bool embeds = false;
  // If true, adapters contain no A and B but a whole matrix that replaces the model's matrix (PEFT's modules_to_save).
  // In that case the linear has one module. A head's linear has all columns of this module. An embedding's linear has
  // all rows of this module.
  bool whole = false;
  // Number of experts in the model if the weight is a stack of experts' matrices; otherwise 0.
  std::int64_t experts = 0;
  double factor = 1;  // the graph multiplies the linear's result by this, so an adapter's change must be multiplied too
  std::int64_t cols = 0;
  std::int64_t first_col = 0;            // first column of this linear in the modules' matrices
  std::vector<AdaptableModule> modules;  // each module occurs once
  std::vector<AdaptableRange> ranges;    // in ascending order of the result's columns

  std::int64_t rows() const;
  // Consecutive columns of the result that belong to one module. They may be computed from rows of the module's matrix
  // that are not consecutive.
  struct Columns {
    std::size_t module;
    std::int64_t count;
  };
  std::vector<Columns> columns() const;
};

// Returns the linear that consists of these parts. Returns nothing if adapters cannot change the linear. They cannot if
// a part is padded with zeros, or is read from a stack or a transposed matrix, or if columns() would return more
// entries than the operators support.
std::optional<AdaptableLinear> adaptable_linear(std::string weight, std::span<const LinearPart> parts);

struct AdapterLimits {
  std::int64_t slots = 8;      // maximum number of adapters in one forward; at least 1
  std::int64_t max_rank = 16;  // maximum LoRA rank of an adapter; at least 1
  // The modules that adapters may change, each given by the last word of its name, such as "q_proj" or "lm_head".
  // kExperts stands for the experts' matrices. kAllLinears stands for all other linears of the layers. An empty list
  // means the same as kAllLinears.
  std::vector<std::string> targets = {};
  // The modules whose whole matrix an adapter may replace (PEFT's modules_to_save), each given by the last word of its
  // name: "lm_head" and "embed_tokens". Every slot has memory for each such matrix.
  std::vector<std::string> saved = {};
};
inline constexpr std::string_view kAllLinears = "all-linear";  // PEFT's word for all linears
inline constexpr std::string_view kExperts = "experts";

// These limits equal those of vLLM and SGLang.
inline constexpr std::int64_t kMaxAdapterRank = 512;
inline constexpr std::int64_t kMaxAdapterSlots = 1024;

class AdapterLayout {
 public:
  // The linears of each rank.
  using OfRanks = std::vector<std::vector<AdaptableLinear>>;
  // Chooses the linears that have a module among the targets, and the linears that have a module among the saved
  // modules. A linear that fits both conditions appears twice. linears() returns the linears of rank `rank`.
  // Returns invalid_argument for limits out of range, and for a target or a saved module that matches no linear.
  // Returns unimplemented if no linear of the model is chosen.
  static Result<AdapterLayout> create(OfRanks linears, std::size_t rank, AdapterLimits limits, ir::DType dtype);

  const std::vector<AdaptableLinear>& linears() const { return linears_[rank_]; }  // the linears of rank()
  const std::vector<AdaptableLinear>& linears_of(std::size_t rank) const { return linears_[rank]; }
  std::size_t rank() const { return rank_; }
  std::size_t num_ranks() const { return linears_.size(); }
  const AdapterLimits& limits() const { return limits_; }
  ir::DType dtype() const { return dtype_; }  // the type of A, B and the activations

  // Where a module occurs: a rank, one of its linears, and the module's index among that linear's modules.
  struct Place {
    std::size_t rank;
    std::size_t linear;
    std::size_t module;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  const AdaptableLinear& linear_at(const Place& place) const { return linears_[place.rank][place.linear]; }
  const AdaptableModule& module_at(const Place& place) const { return linear_at(place).modules[place.module]; }
  // Returns all places of a module's A and B or, if `whole` is true, of the module's whole matrix. A rank may have
  // several places, because a projection's rows may be split between two linears. Returns an empty list if adapters may
  // not change the module in this way.
  std::vector<Place> places_of(std::string_view module, bool whole = false) const;
  // Returns this rank's linear, or embedding, for a weight; null if the layout does not contain it.
  const AdaptableLinear* find(std::string_view weight, bool embeds = false, bool whole = false) const;
  // Returns, for messages, the words in AdapterLimits::targets that match modules of this layout. Each word occurs
  // once.
  std::string target_names() const;
  // Returns the size in bytes of the largest share (AdapterShare) that an adapter can have on a rank, without padding.
  std::int64_t most_share_bytes(std::size_t rank) const;
  // Returns how many rows of A each slot holds for each module of a linear. A whole matrix counts as an A.
  std::int64_t rows_of_a(const AdaptableLinear& linear) const {
    return linear.whole ? linear.rows() : limits_.max_rank;
  }

 private:
  using PlacesOfModules = std::map<std::string, std::vector<Place>, std::less<>>;

  OfRanks linears_;
  PlacesOfModules places_;        // where A and B go; the key is from_layer() of the module's name
  PlacesOfModules whole_places_;  // where whole matrices go
  std::size_t rank_ = 0;
  AdapterLimits limits_;
  ir::DType dtype_ = ir::DType::kFloat32;
};

// Returns the last word of a module's name: "q_proj".
std::string_view last_word(std::string_view module);
// Returns whether adapters may contain the whole matrix of a module with this name (AdapterLimits::saved).
constexpr bool can_be_saved(std::string_view module) { return module == "lm_head" || module == "embed_tokens"; }
// Returns a module's name without the prefix before "layers.": "layers.0.self_attn.q_proj". This prefix may differ
// between checkpoints of one model. The names of the embedding and the head become "embed_tokens" and "lm_head". Any
// other name without a layer is returned unchanged.
std::string_view from_layer(std::string_view module);

}  // namespace tessera
