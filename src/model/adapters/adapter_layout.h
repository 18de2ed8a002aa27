// The linears of a model that low-rank adapters (LoRA) may change, and which modules of a checkpoint each of them
// consists of. Layers note their linears while they are built; a layout has those that the options choose.
//
// Ranks that share a model have linears of their own. A rank that holds some rows of a module's matrix takes these rows
// of B and all of A. A rank that holds some columns takes these columns of A and all of B; its change is a part of a
// sum, like the product that it is added to.
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

// A matrix of the checkpoint, by the name that adapters use.
struct AdaptableModule {
  std::string name;            // "model.layers.0.self_attn.q_proj"
  std::int64_t rows = 0;       // rows of the whole matrix, which B has too
  std::int64_t cols = 0;       // columns of the whole matrix, which A has too
  std::int64_t expert = -1;    // expert whose matrix it is; -1: none
  std::int64_t stack_row = 0;  // where it begins in the expert's matrix of the stack: up lies behind gate
};

// Neighbouring columns of a linear's result: rows of one module's matrix.
struct AdaptableRange {
  std::size_t module = 0;      // index into AdaptableLinear::modules
  std::int64_t first_row = 0;  // in the module's matrix
  std::int64_t rows = 0;
};

// A linear x [T, cols] → [T, rows of all ranges], as one rank computes it. An embedding is the linear of rows that are
// 1 at their token and 0 elsewhere: its matrix is [hidden size, ids], the transpose of its table.
struct AdaptableLinear {
  std::string weight;  // the graph's value that is its matrix or table
  bool embeds = false;
  std::int64_t experts = 0;  // it is a stack of experts' matrices, of so many in the model; 0: it is none
  double factor = 1;         // what the module's result, and so its change, is multiplied by
  std::int64_t cols = 0;
  std::int64_t first_col = 0;            // in the modules' matrices
  std::vector<AdaptableModule> modules;  // each once
  std::vector<AdaptableRange> ranges;    // in the order of the result's columns

  std::int64_t rows() const;
  // Neighbouring columns of the result that belong to one module, whatever their rows in its matrix.
  struct Columns {
    std::size_t module;
    std::int64_t count;
  };
  std::vector<Columns> columns() const;
};

// Returns the linear of these parts, or nothing if adapters cannot change it: it has zeros behind a part, is read from
// a stack or a transposed matrix, or has more Columns than the operators take.
std::optional<AdaptableLinear> adaptable_linear(std::string weight, std::span<const LinearPart> parts);

struct AdapterLimits {
  std::int64_t slots = 8;      // adapters that one forward may mix; at least 1
  std::int64_t max_rank = 16;  // at least 1
  // Last words of the names of modules that adapters may change, such as "q_proj" or "lm_head". kExperts stands for the
  // experts' matrices. kAllLinears stands for all other linears of the layers, and so does an empty list.
  std::vector<std::string> targets = {};
};
inline constexpr std::string_view kAllLinears = "all-linear";  // PEFT's word
inline constexpr std::string_view kExperts = "experts";

// The bounds that vLLM and SGLang have too.
inline constexpr std::int64_t kMaxAdapterRank = 512;
inline constexpr std::int64_t kMaxAdapterSlots = 1024;

class AdapterLayout {
 public:
  // The linears of each rank of the model.
  using OfRanks = std::vector<std::vector<AdaptableLinear>>;
  // Chooses the linears of which some module is a target, as rank `rank` sees them. invalid_argument for limits out of
  // range, a target that no linear has, and a model without such linears.
  static Result<AdapterLayout> create(OfRanks linears, std::size_t rank, AdapterLimits limits, ir::DType dtype);

  const std::vector<AdaptableLinear>& linears() const { return linears_[rank_]; }  // this rank's
  const std::vector<AdaptableLinear>& linears_of(std::size_t rank) const { return linears_[rank]; }
  std::size_t rank() const { return rank_; }
  std::size_t num_ranks() const { return linears_.size(); }
  const AdapterLimits& limits() const { return limits_; }
  ir::DType dtype() const { return dtype_; }  // the type of the matrices and of activations

  // A place of a module: a rank, one of its linears, and the module's number among that linear's modules.
  struct Place {
    std::size_t rank;
    std::size_t linear;
    std::size_t module;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  const AdaptableLinear& linear_at(const Place& place) const { return linears_[place.rank][place.linear]; }
  const AdaptableModule& module_at(const Place& place) const { return linear_at(place).modules[place.module]; }
  // Returns the places of a module. It may have several on a rank, as a projection does whose rows are split between
  // two linears. Empty: adapters may not change it.
  std::vector<Place> places_of(std::string_view module) const;
  // Returns this rank's linear, or embedding, of a weight; null if the layout does not have it.
  const AdaptableLinear* find(std::string_view weight, bool embeds = false) const;
  // Returns the last words of all modules, each once, for messages.
  std::string target_names() const;

 private:
  OfRanks linears_;
  std::map<std::string, std::vector<Place>, std::less<>> places_;  // by from_layer() of the module's name
  std::size_t rank_ = 0;
  AdapterLimits limits_;
  ir::DType dtype_ = ir::DType::kFloat32;
};

// Returns the last word of a module's name: "q_proj".
std::string_view last_word(std::string_view module);
// Returns a module's name from its layer on: "layers.0.self_attn.q_proj". Checkpoints of one model have different
// prefixes before it. The names of the embedding and the head become "embed_tokens" and "lm_head"; another name without
// a layer is returned whole.
std::string_view from_layer(std::string_view module);

}  // namespace tessera
