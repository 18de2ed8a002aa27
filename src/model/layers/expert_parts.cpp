#include "tessera/model/layers/expert_parts.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

ExpertShare expert_share(const MoeConfig& moe, const ModelOptions& options) {
  const int slices = options.expert_ranks() / options.ep_size;
  const std::int64_t experts = moe.num_experts / options.ep_size;
  return {.first_expert = options.expert_rank() / slices * experts,
          .experts = experts,
          .slice = options.expert_rank() % slices,
          .slices = slices};
}

ExpertParts::ExpertParts(const ModelConfig& config, const ModelOptions& options, const ExpertTensors& tensors)
    : tensors_(tensors),
      hidden_(config.hidden_size),
      size_(config.moe->intermediate_size),
      experts_(config.moe->num_experts),
      share_(expert_share(*config.moe, options)),
      local_(size_ / share_.slices),
      first_(local_ * share_.slice) {}

std::vector<WeightPart> ExpertParts::gate_up() const {
  if (tensors_.layout == ExpertLayout::kStacked && local_ == size_)
    return {{.tensor = tensors_.prefix + "gate_up_proj",
             .shape = {experts_, 2 * size_, hidden_},
             .slice = whole_experts()}};
  std::vector<WeightPart> parts;
  for (std::int64_t e = share_.first_expert; e < end(); ++e)
    for (const bool up : {false, true}) parts.push_back(gate_or_up(e, up));
  return parts;
}

std::vector<WeightPart> ExpertParts::down() const {
  if (tensors_.layout == ExpertLayout::kStacked && local_ == size_)
    return {{.tensor = tensors_.prefix + "down_proj", .shape = {experts_, hidden_, size_}, .slice = whole_experts()}};
  std::vector<WeightPart> parts;
  for (std::int64_t e = share_.first_expert; e < end(); ++e) parts.push_back(down(e));
  return parts;
}

std::vector<WeightPart> ExpertParts::gate_up_elsewhere() const {
  std::vector<WeightPart> parts;
  for (const std::int64_t e : experts_elsewhere())
    for (const bool up : {false, true}) parts.push_back(gate_or_up(e, up));
  return parts;
}

std::vector<WeightPart> ExpertParts::down_elsewhere() const {
  std::vector<WeightPart> parts;
  for (const std::int64_t e : experts_elsewhere()) parts.push_back(down(e));
  return parts;
}

std::vector<WeightPart> ExpertParts::packed_gate_up(Packed content) const {
  const std::int64_t columns = hidden_ / values_of(content);
  std::vector<WeightPart> parts;
  for (std::int64_t e = share_.first_expert; e < end(); ++e)
    for (const bool up : {false, true})
      parts.push_back({.tensor = packed_name("gate_up_proj", content),
                       .shape = {size_, columns},
                       .slice = {.dim = 0, .begin = first_, .size = local_},
                       .storage = PackedStorage{.tensor_shape = packed_shape(2 * size_, hidden_, content),
                                                .offset = (e * 2 * size_ + (up ? 1 : 0)) * columns,
                                                .row_stride = 2 * columns,
                                                .content = content}});
  return parts;
}

std::vector<WeightPart> ExpertParts::packed_down(Packed content) const {
  const std::int64_t columns = size_ / values_of(content);
  const TensorSlice slice{.dim = 1, .begin = first_ / values_of(content), .size = local_ / values_of(content)};
  std::vector<WeightPart> parts;
  for (std::int64_t e = share_.first_expert; e < end(); ++e)
    parts.push_back({.tensor = packed_name("down_proj", content),
                     .shape = {hidden_, columns},
                     .slice = slice,
                     .storage = PackedStorage{.tensor_shape = packed_shape(hidden_, size_, content),
                                              .offset = e * hidden_ * columns,
                                              .row_stride = columns,
                                              .content = content}});
  return parts;
}

std::int64_t ExpertParts::values_of(Packed content) { return content == Packed::kFourBits ? 2 : kMxfp4Block; }

std::vector<LinearPart> ExpertParts::gate_up_matrices(Of of) const {
  std::vector<LinearPart> matrices;
  for (const std::int64_t e : experts_of(of))
    for (const bool up : {false, true})
      matrices.push_back(matrix_of(gate_or_up(e, up), module(e, up ? tensors_.up : tensors_.gate)));
  return matrices;
}

std::vector<LinearPart> ExpertParts::down_matrices(Of of) const {
  std::vector<LinearPart> matrices;
  for (const std::int64_t e : experts_of(of)) matrices.push_back(matrix_of(down(e), module(e, tensors_.down)));
  return matrices;
}

LinearPart ExpertParts::matrix_of(WeightPart part, std::string module) const {
  const bool by_columns = part.slice.dim == 1;
  return {.tensor = tensors_.layout == ExpertLayout::kSeparate ? std::move(module) : part.tensor,
          .matrix = part.tensor,
          .tensor_rows = part.shape[0],
          .tensor_cols = part.shape[1],
          .slice = part.slice,
          .rows = by_columns ? part.shape[0] : local_,
          .cols = by_columns ? local_ : part.shape[1],
          .storage = std::move(part.storage)};
}

std::vector<WeightPart> ExpertParts::gate_up_bias() const {
  const bool in_turn = tensors_.layout == ExpertLayout::kInterleaved;
  std::vector<WeightPart> parts;
  for (std::int64_t e = share_.first_expert; e < end(); ++e)
    for (const bool up : {false, true})
      parts.push_back({.tensor = tensors_.prefix + "gate_up_proj_bias",
                       .shape = {size_},
                       .slice = {.dim = 0, .begin = first_, .size = local_},
                       .storage = StridedStorage{.tensor_shape = {experts_, 2 * size_},
                                                 .offset = e * 2 * size_ + (!up       ? 0
                                                                            : in_turn ? 1
                                                                                      : size_),
                                                 .col_stride = in_turn ? 2 : 1}});
  return parts;
}

std::vector<WeightPart> ExpertParts::down_bias() const {
  return {{.tensor = tensors_.prefix + "down_proj_bias", .shape = {experts_, hidden_}, .slice = whole_experts()}};
}

TensorSlice ExpertParts::whole_experts() const {
  return {.dim = 0, .begin = share_.first_expert, .size = share_.experts};
}

std::vector<std::int64_t> ExpertParts::experts_elsewhere() const {
  std::vector<std::int64_t> others;
  if (tensors_.layout != ExpertLayout::kSeparate) return others;
  for (std::int64_t e = 0; e < experts_; ++e)
    if (e < share_.first_expert || e >= end()) others.push_back(e);
  return others;
}

std::vector<std::int64_t> ExpertParts::experts_of(Of of) const {
  if (of == Of::kOthers) return experts_elsewhere();
  std::vector<std::int64_t> own;
  for (std::int64_t e = share_.first_expert; e < end(); ++e) own.push_back(e);
  return own;
}

std::string ExpertParts::module(std::int64_t expert, const std::string& name) const {
  return fmt::format("{}{}.{}", tensors_.prefix, expert, name);
}

std::string ExpertParts::separate(std::int64_t expert, const std::string& name) const {
  return module(expert, name) + ".weight";
}

std::string ExpertParts::packed_name(const char* name, Packed content) const {
  return tensors_.prefix + name + (content == Packed::kFourBits ? "_blocks" : "_scales");
}

std::vector<std::int64_t> ExpertParts::packed_shape(std::int64_t rows, std::int64_t columns, Packed content) const {
  std::vector<std::int64_t> shape{experts_, rows, columns / kMxfp4Block};
  if (content == Packed::kFourBits) shape.push_back(kMxfp4Block / 2);
  return shape;
}

// Returns this rank's rows of an expert's matrix gate or up [I, H]. The rows begin at row first_.
WeightPart ExpertParts::gate_or_up(std::int64_t expert, bool up) const {
  WeightPart part{.tensor = tensors_.prefix + "gate_up_proj",
                  .shape = {size_, hidden_},
                  .slice = {.dim = 0, .begin = first_, .size = local_}};
  const std::int64_t begin = expert * 2 * size_ * hidden_;
  switch (tensors_.layout) {
    case ExpertLayout::kSeparate: part.tensor = separate(expert, up ? tensors_.up : tensors_.gate); break;
    case ExpertLayout::kStacked:
      part.storage = StridedStorage{.tensor_shape = {experts_, 2 * size_, hidden_},
                                    .offset = begin + (up ? size_ * hidden_ : 0),
                                    .row_stride = hidden_,
                                    .col_stride = 1};
      break;
    case ExpertLayout::kTransposed:
      part.storage = StridedStorage{.tensor_shape = {experts_, hidden_, 2 * size_},
                                    .offset = begin + (up ? size_ : 0),
                                    .row_stride = 1,
                                    .col_stride = 2 * size_};
      break;
    case ExpertLayout::kInterleaved:
      part.storage = StridedStorage{.tensor_shape = {experts_, hidden_, 2 * size_},
                                    .offset = begin + (up ? 1 : 0),
                                    .row_stride = 2,
                                    .col_stride = 2 * size_};
      break;
  }
  return part;
}

// Returns this rank's columns of an expert's matrix down [H, I]. The columns begin at column first_.
WeightPart ExpertParts::down(std::int64_t expert) const {
  WeightPart part{.tensor = tensors_.prefix + "down_proj",
                  .shape = {hidden_, size_},
                  .slice = {.dim = 1, .begin = first_, .size = local_}};
  const std::int64_t begin = expert * size_ * hidden_;
  switch (tensors_.layout) {
    case ExpertLayout::kSeparate: part.tensor = separate(expert, tensors_.down); break;
    case ExpertLayout::kStacked:
      part.storage = StridedStorage{
          .tensor_shape = {experts_, hidden_, size_}, .offset = begin, .row_stride = size_, .col_stride = 1};
      break;
    case ExpertLayout::kTransposed:
    case ExpertLayout::kInterleaved:
      part.storage = StridedStorage{
          .tensor_shape = {experts_, size_, hidden_}, .offset = begin, .row_stride = 1, .col_stride = hidden_};
      break;
  }
  return part;
}

}  // namespace tessera
