#include "tessera/model/gguf/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/model/gguf/gguf_architectures.h"
#include "tessera/model/gguf/gguf_config.h"
#include "tessera/model/gguf/gguf_projector.h"
#include "tessera/model/gguf/made_nvfp4.h"
#include "tessera/model/gguf/made_tensors.h"
#include "tessera/model/gguf/stored_blocks.h"
#include "tessera/model/gguf/stored_form.h"
#include "tessera/model/gguf/tensor_factors.h"
#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/moe/moe_route.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {
namespace {

using Form = TensorForm;

// Returns a vector as a matrix with one column.
StoredBlocks column_of(const GgufTensor& tensor) { return {tensor.type, tensor.data.data(), 1, tensor.factor}; }

// Converts a GGUF model's tensors to a list of Hugging Face's tensors.
class Translator {
 public:
  Translator(const GgufModel& model, const GgufArchitecture& architecture)
      : model_(model), architecture_(architecture), prefix_(std::string(architecture.name) + ".") {}

  Result<TensorFile> translate() {
    file_.path = model_.path();
    if (model_.projector() != nullptr) body_ = TRY(projector_images(*model_.projector(), architecture_))->body_prefix;
    TRY(read_sizes());
    factors_ = TRY(TensorFactors::read(model_, architecture_.names));
    for (const GgufFile& file : model_.files()) {
      if (file.mapping() != nullptr) file_.mappings.push_back(file.mapping());
      for (const GgufTensor& tensor : file.tensors()) TRY(add(tensor));
    }
    file_.own_name = [names =
                          OwnNames{.rules = architecture_.names,
                                   .body = body_,
                                   .drafts_after = architecture_.drafts_apart ? std::optional(layers_) : std::nullopt}](
                         std::string_view name) { return gguf_name_of(name, names); };
    for (const auto& [name, half] : halves_)
      return data_loss(fmt::format("{}: tensor {} has no other half for {}; accepted: both of them", model_.path(),
                                   half.tensor->name, name));
    return std::move(file_);
  }

 private:
  // Reads the sizes on which the converters' permutation of rows depends.
  Status read_sizes() {
    const auto size = [&](const char* key, std::int64_t& to) -> Status {
      constexpr std::int64_t kMost = 1 << 20;  // products of three sizes fit in 63 bits
      to = TRY(model_.optional_integer(prefix_ + key)).value_or(0);
      return to <= kMost ? ok_status() : model_.wrong(prefix_ + key, fmt::format("0 to {}", kMost));
    };
    TRY(size("attention.head_count", heads_));
    if (!architecture_.sizes_by_layer) TRY(size("attention.head_count_kv", kv_heads_));
    TRY(size("ssm.group_count", net_keys_));
    TRY(size("ssm.time_step_rank", net_values_));
    TRY(size("ssm.state_size", net_key_size_));
    TRY(size("ssm.inner_size", net_inner_));
    TRY(size("block_count", layers_));
    std::int64_t drafts = 0;
    TRY(size("nextn_predict_layers", drafts));
    layers_ -= drafts;
    if (kv_heads_ == 0) kv_heads_ = heads_;
    return ok_status();
  }

  Status misfit(const GgufTensor& tensor, const std::string& accepted) const {
    return wrong_shape(model_.path(), tensor, accepted);
  }

  // Adds the tensors that are made of a tensor of the file.
  Status add(const GgufTensor& tensor) {
    if (factors_.is_of_matrix(tensor.name)) return ok_status();
    const GgufTensorName name = parse_tensor_name(tensor.name);
    const TensorNameRule* rule = find_name_rule(name, architecture_.names);
    if (rule == nullptr)
      return unimplemented(fmt::format("{}: tensor {} is unknown; accepted: the tensors of the architecture {}",
                                       model_.path(), clip_text(Json(tensor.name).dump()), architecture_.name));
    if (rule->form == Form::kSkipped) return ok_status();
    TRY(check_readable(model_.path(), tensor));
    const std::size_t first = file_.tensors.size();
    const std::span<const float> factors = factors_.of(tensor.name);
    if (factors.empty()) {
      TRY(add_in_form(own_name(name, rule->own), tensor, rule->form));
    } else {
      TRY(add_in_form(own_name(name, rule->own), multiplied_.emplace_back(TRY(multiplied(tensor, *rule, factors))),
                      rule->form));
    }
    for (std::size_t i = first; i < file_.tensors.size(); ++i) file_.tensors[i].source = tensor.name;
    return ok_status();
  }

  // Returns the tensor with its factor. The factors of a stack of experts are applied later, when the stack is split.
  Result<GgufTensor> multiplied(const GgufTensor& tensor, const TensorNameRule& rule,
                                std::span<const float> factors) const {
    GgufTensor result = tensor;
    if (factors.size() == 1) {
      result.factor = factors[0];
    } else if (rule.form != Form::kExperts && rule.form != Form::kGateUpExperts) {
      return misfit(tensor, "that of one matrix, or of experts, because its scale has several numbers");
    }
    return result;
  }

  Status add_in_form(const std::string& own, const GgufTensor& tensor, Form form) {
    switch (form) {
      case Form::kSkipped: break;
      case Form::kSame:
        if (!add_nvfp4(own, tensor, {})) add_same(own, tensor, tensor.shape);
        break;
      case Form::kRow: add_same(own, tensor, {1, tensor.shape.back()}); break;
      case Form::kLessOne: add_rows(own, tensor, {.change = NumberChange::kLessOne}); break;
      case Form::kYesLessNo: return add_yes_less_no(own, tensor);
      case Form::kQueryRows: return add_pairs(own, tensor, heads_);
      case Form::kKeyRows: return add_pairs(own, tensor, kv_heads_);
      case Form::kExperts: return add_experts(own, tensor, {""});
      case Form::kGateUpExperts: return add_experts(own, tensor, {"gate_proj.weight", "up_proj.weight"});
      case Form::kMxfp4Down: return add_mxfp4(own, {&tensor});
      case Form::kBiasGate:
      case Form::kMxfp4Gate:
      case Form::kLatentKeys: return add_half(own, tensor, form, false);
      case Form::kBiasUp:
      case Form::kMxfp4Up:
      case Form::kLatentValues: return add_half(own, tensor, form, true);
      case Form::kValueRows:
      case Form::kValueHeads:
      case Form::kValueColumns:
      case Form::kMixedRows:
      case Form::kConvolution:
      case Form::kDecay: return add_of_net(own, tensor, form);
    }
    return ok_status();
  }

  std::string own_name(const GgufTensorName& name, std::string_view own) const {
    constexpr std::string_view kBody = "/model.";
    if (own.starts_with(kBody)) return body_ + std::string(own.substr(kBody.size()));
    if (own.starts_with('/')) return std::string(own.substr(1));
    const std::int64_t layer = name.layer.value_or(0);
    if (architecture_.drafts_apart && layer >= layers_) return fmt::format("mtp.layers.{}.{}", layer - layers_, own);
    return fmt::format("{}layers.{}.{}", body_, layer, own);
  }

  // Adds a tensor whose elements keep the file's order.
  void add_same(std::string name, const GgufTensor& tensor, std::vector<std::int64_t> shape) {
    file_.tensors.push_back(same_elements(std::move(name), tensor, std::move(shape)));
  }

  // Returns whether the tensor is a table of embeddings, or a matrix whose numbers the loader reads.
  static bool is_read_as_numbers(std::string_view name) {
    return name == kGgufEmbeddings || name == "per_layer_token_embd.weight" || name.ends_with(".attn_kv_b.weight");
  }

  // Returns whether all stacks of experts in the layer of `stack` are NVFP4. One kernel reads them all.
  bool has_nvfp4_experts(const GgufTensor& stack) const {
    if (stack.type != BlockType::kNVFP4) return false;
    const std::string layer = stack.name.substr(0, stack.name.find("ffn_"));
    return std::ranges::all_of(std::array{"gate", "up", "gate_up", "down"}, [&](const char* part) {
      const GgufTensor* const tensor = model_.find_tensor(fmt::format("{}ffn_{}_exps.weight", layer, part));
      return tensor == nullptr || tensor->type == BlockType::kNVFP4;
    });
  }

  // Adds a matrix of NVFP4 as the three tensors that safetensors have for it: values, scales of groups, and the factor.
  // Adds nothing and returns false for other tensors, for tables of embeddings and matrices that are read as numbers,
  // for architectures without such matrices, and for factors that checkpoints cannot have.
  bool add_nvfp4(const std::string& name, const GgufTensor& tensor, const StoredOrder& rows) {
    constexpr std::string_view kMatrix = ".weight";
    if (!architecture_.keeps_nvfp4 || tensor.type != BlockType::kNVFP4 || tensor.shape.size() != 2 ||
        tensor.factor <= 0 || is_read_as_numbers(tensor.name) || !name.ends_with(kMatrix))
      return false;
    const StoredBlocks blocks = matrix_of(tensor);
    const auto add = [&](std::string_view suffix, StoredDtype dtype, std::vector<std::int64_t> shape,
                         std::shared_ptr<const TensorElements> made) {
      file_.tensors.push_back({.name = name + std::string(suffix),
                               .dtype = dtype,
                               .shape = std::move(shape),
                               .data = {},
                               .made = std::move(made)});
    };
    add("", StoredDtype::kU8, {tensor.shape[0], tensor.shape[1] / 2}, make_nvfp4_values(blocks, rows));
    add("_scale", StoredDtype::kF8E4M3, {tensor.shape[0], tensor.shape[1] / kNvfp4Group},
        make_nvfp4_scales(blocks, rows));
    add("_scale_2", StoredDtype::kF32, {}, make_numbers({tensor.factor}));
    return true;
  }

  void add_made(std::string name, const GgufTensor& tensor, std::vector<std::int64_t> shape,
                std::shared_ptr<const TensorElements> made, StoredDtype dtype = StoredDtype::kF32) {
    StoredTensor stored{.name = std::move(name), .dtype = dtype, .shape = std::move(shape), .data = {}};
    stored.made = std::move(made);
    if (!plain_dtype(tensor.type)) stored.blocks = tensor.type;
    file_.tensors.push_back(std::move(stored));
  }

  // Adds a tensor whose rows or columns are permuted, or whose numbers are changed. If the rows of a vector are
  // permuted, the vector counts as a matrix with one column.
  void add_rows(std::string name, const GgufTensor& tensor, const RowArrangement& arrangement) {
    const bool only_rows = arrangement.cols.is_same() && arrangement.change == NumberChange::kNone;
    if (only_rows && add_nvfp4(name, tensor, arrangement.rows)) return;
    const bool vector = tensor.shape.size() == 1 && !arrangement.rows.is_same();
    add_made(std::move(name), tensor, tensor.shape,
             make_rows({.matrices = {vector ? column_of(tensor) : matrix_of(tensor)}}, arrangement));
  }

  // Adds the weight or bias of queries or keys. The converter stored the n rows of a head in the order 0, n/2, 1, n/2 +
  // 1, and so on.
  Status add_pairs(std::string name, const GgufTensor& tensor, std::int64_t heads) {
    const std::int64_t rows = tensor.shape[0];
    if (tensor.shape.size() > 2 || heads < 1 || rows % (2 * heads) != 0)
      return misfit(tensor, fmt::format("a number of rows that is a multiple of twice the {} heads", heads));
    add_rows(std::move(name), tensor, {.rows = {.a = 2, .b = rows / heads / 2}});
    return ok_status();
  }

  // Adds the head of a reranker. The logit of the score is the logit of "yes" minus the logit of "no".
  Status add_yes_less_no(std::string name, const GgufTensor& tensor) {
    if (tensor.shape.size() != 2 || tensor.shape[0] > 2)
      return misfit(tensor, "one row, or two, of \"yes\" and \"no\"");
    if (tensor.shape[0] == 1) {
      add_same(std::move(name), tensor, tensor.shape);
      return ok_status();
    }
    const std::int64_t cols = tensor.shape[1];
    std::vector<float> yes(static_cast<std::size_t>(cols));
    std::vector<float> no(yes.size());
    matrix_of(tensor).read(0, 0, cols, yes.data());
    matrix_of(tensor).read(1, 0, cols, no.data());
    std::ranges::transform(yes, no, yes.begin(), std::minus());
    StoredTensor stored{.name = std::move(name), .dtype = StoredDtype::kF32, .shape = {1, cols}, .data = {}};
    stored.made = make_numbers(std::move(yes));
    file_.tensors.push_back(std::move(stored));
    return ok_status();
  }

  // Splits a stack of experts' matrices. Each expert gets one tensor for each of `parts`, and the expert's rows are
  // divided equally among these tensors. A tensor's name consists of `name`, in which the expert's number replaces
  // "{}", and the element of `parts`.
  Status add_experts(const std::string& name, const GgufTensor& tensor, std::initializer_list<const char*> parts) {
    const auto count = static_cast<std::int64_t>(parts.size());
    if (tensor.shape.size() != 3 || tensor.shape[1] % count != 0)
      return misfit(tensor, count == 1 ? "[experts, rows, columns]" : "[experts, rows of gate and up, columns]");
    if (tensor.shape[0] > kMaxExperts) return misfit(tensor, fmt::format("at most {} experts", kMaxExperts));
    const std::size_t at = name.find("{}");
    const std::size_t bytes = tensor.data.size() / static_cast<std::size_t>(tensor.shape[0] * count);
    const std::span<const float> factors = factors_.of(tensor.name);
    const bool keeps_nvfp4 = has_nvfp4_experts(tensor);
    std::size_t first = 0;
    for (std::int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
      for (const char* part : parts) {
        GgufTensor own{.name = tensor.name,
                       .type = tensor.type,
                       .shape = {tensor.shape[1] / count, tensor.shape[2]},
                       .data = tensor.data.subspan(first, bytes),
                       .factor = factors.size() > 1 ? factors[static_cast<std::size_t>(expert)] : tensor.factor};
        const std::string of_expert = fmt::format("{}{}{}{}", name.substr(0, at), expert, name.substr(at + 2), part);
        if (!keeps_nvfp4 || !add_nvfp4(of_expert, own, {})) add_same(of_expert, own, own.shape);
        first += bytes;
      }
    }
    return ok_status();
  }

  // One of two tensors of the file that become one tensor. The tensor that is read first is kept here until the second
  // tensor is read.
  struct Half {
    const GgufTensor* tensor;
    bool is_second;
  };
  Status add_half(const std::string& name, const GgufTensor& tensor, Form form, bool is_second) {
    const auto [other, is_first_seen] = halves_.emplace(name, Half{&tensor, is_second});
    if (is_first_seen) return ok_status();
    if (other->second.is_second == is_second)
      return data_loss(fmt::format("{}: tensors {} and {} mean the same tensor; accepted: only one of them",
                                   model_.path(), other->second.tensor->name, tensor.name));
    const GgufTensor& first = is_second ? *other->second.tensor : tensor;
    const GgufTensor& second = is_second ? tensor : *other->second.tensor;
    halves_.erase(other);
    if (form == Form::kLatentKeys || form == Form::kLatentValues) return add_latent(name, first, second);
    if (first.shape != second.shape) return misfit(second, "that of " + first.name);
    if (form == Form::kMxfp4Gate || form == Form::kMxfp4Up) return add_mxfp4(name, {&first, &second});
    if (first.shape.size() != 2u) return misfit(first, "[experts, rows]");
    std::vector<std::int64_t> shape = first.shape;
    shape[1] *= 2;
    JoinedRows rows{.matrices = {column_of(first), column_of(second)}};
    add_made(name, first, std::move(shape), make_rows(std::move(rows), {}));
    return ok_status();
  }

  // Adds MXFP4 values and exponents as two tensors.
  Status add_mxfp4(const std::string& name, const std::vector<const GgufTensor*>& tensors) {
    JoinedRows rows{.matrices = {}};
    for (const GgufTensor* tensor : tensors) {
      if (tensor->type != BlockType::kMXFP4)
        return unimplemented(
            fmt::format("{}: tensor {}: type is {}; accepted: MXFP4, in which the experts of this "
                        "architecture are published",
                        model_.path(), tensor->name, block_type_info(tensor->type).name));
      if (tensor->shape.size() != 3) return misfit(*tensor, "[experts, rows, columns]");
      if (tensor->factor != 1)
        return unimplemented(fmt::format("{}: tensor {}: its scale is {}; accepted: 1, or no scale", model_.path(),
                                         tensor->name, tensor->factor));
      rows.matrices.push_back(matrix_of(*tensor));
    }
    const std::vector<std::int64_t>& stored = tensors[0]->shape;
    std::vector<std::int64_t> shape{stored[0], stored[1] * std::ssize(tensors), stored[2] / kMxfp4Block};
    add_made(name + "_scales", *tensors[0], shape, make_mxfp4_exponents(rows), StoredDtype::kU8);
    shape.push_back(kMxfp4Block / 2);
    add_made(name + "_blocks", *tensors[0], shape, make_mxfp4_values(rows), StoredDtype::kU8);
    return ok_status();
  }

  Status add_latent(const std::string& name, const GgufTensor& keys, const GgufTensor& values) {
    const auto& k = keys.shape;
    const auto& v = values.shape;
    if (k.size() != 3) return misfit(keys, "[heads, latent, keys]");
    if (v.size() != 3 || v[0] != k[0] || v[2] != k[1])
      return misfit(values, fmt::format("[{}, values, {}], as {} has them", k[0], k[1], keys.name));
    add_made(
        name, keys, {k[0] * (k[2] + v[1]), k[1]},
        make_latent_rows(matrix_of(keys), matrix_of(values), {.key_rows = k[2], .value_rows = v[1], .latent = k[1]}));
    return ok_status();
  }

  // Adds a tensor of a gated delta net. A key head has several value heads. Hugging Face stores all value heads of key
  // head 0, then those of key head 1, and so on. The file stores the first value head of every key head, then the
  // second value head of every key head, and so on.
  Status add_of_net(std::string name, const GgufTensor& tensor, Form form) {
    if (net_keys_ < 1 || net_values_ < 1 || net_values_ % net_keys_ != 0 || net_inner_ < 1 ||
        net_inner_ % net_values_ != 0)
      return model_.wrong(prefix_ + "ssm.time_step_rank", "a multiple of ssm.group_count that divides ssm.inner_size");
    const std::int64_t size = net_inner_ / net_values_;
    const bool mixed = form == Form::kMixedRows || form == Form::kConvolution;
    const bool single = form == Form::kValueHeads || form == Form::kDecay;
    const StoredOrder order{.first = mixed ? 2 * net_keys_ * net_key_size_ : 0,
                            .a = net_keys_,
                            .b = net_values_ / net_keys_,
                            .unit = single ? 1 : size};
    const bool columns = form == Form::kValueColumns;
    const std::int64_t expected = order.first + net_values_ * order.unit;
    if (tensor.shape.size() > 2 || (columns ? tensor.shape.back() : tensor.shape[0]) != expected)
      return misfit(tensor, fmt::format("{} {}, as the metadata say", expected, columns ? "columns" : "rows"));
    RowArrangement arrangement{.rows = columns ? StoredOrder{} : order, .cols = columns ? order : StoredOrder{}};
    if (form == Form::kDecay) arrangement.change = NumberChange::kLogOfNegative;
    add_rows(std::move(name), tensor, arrangement);
    if (form == Form::kConvolution) {
      std::vector<std::int64_t>& shape = file_.tensors.back().shape;
      shape.insert(shape.begin() + 1, 1);
    }
    return ok_status();
  }

  const GgufModel& model_;
  const GgufArchitecture& architecture_;
  std::string prefix_;           // prefix of the metadata's keys
  std::string body_ = "model.";  // prefix of the names of the language model's tensors
  std::int64_t layers_ = 0;
  std::int64_t heads_ = 0;
  std::int64_t kv_heads_ = 0;
  std::int64_t net_keys_ = 0;
  std::int64_t net_values_ = 0;
  std::int64_t net_key_size_ = 0;
  std::int64_t net_inner_ = 0;
  TensorFactors factors_;
  std::deque<GgufTensor> multiplied_;   // tensors with factors; halves_ points to elements
  std::map<std::string, Half> halves_;  // the key is the name of the resulting tensor
  TensorFile file_;
};

}  // namespace

Result<TensorFile> read_gguf_tensors(const GgufModel& model) {
  const GgufArchitecture* architecture = TRY(gguf_architecture(model));
  return Translator(model, *architecture).translate();
}

}  // namespace tessera
