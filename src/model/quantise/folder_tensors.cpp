#include "tessera/model/quantise/folder_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/model/families/gemma4.h"
#include "tessera/model/gguf/gguf_architectures.h"
#include "tessera/model/gguf/made_tensors.h"
#include "tessera/model/quantise/own_name.h"
#include "tessera/model/quantise/quantised_source.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {
namespace {

using Form = TensorForm;

std::optional<BlockType> type_of(StoredDtype dtype) {
  switch (dtype) {
    case StoredDtype::kF32: return BlockType::kF32;
    case StoredDtype::kF16: return BlockType::kF16;
    case StoredDtype::kBF16: return BlockType::kBF16;
    default: return std::nullopt;
  }
}

// Prefixes of the names of towers, and of the projections of their output.
constexpr std::string_view kTowers[] = {"model.visual.", "model.vision_tower.", "model.embed_vision.",
                                        "model.audio_tower.", "model.embed_audio."};
constexpr std::string_view kDraft = "mtp.";          // prefix of the names of Qwen 3.5's next-token layers
constexpr std::string_view kFused = "mlp.experts.";  // prefix of the names of tensors that contain all experts

class FolderTensors {
 public:
  FolderTensors(const Checkpoint& checkpoint, const ModelConfig& config, GgufContent& content)
      : checkpoint_(checkpoint),
        config_(config),
        content_(content),
        names_(find_gguf_architecture(content.architecture)->names),
        drafts_apart_(find_gguf_architecture(content.architecture)->drafts_apart),
        quantised_(checkpoint, config.formats) {}

  Status add_all() {
    const std::vector<std::string_view> names = checkpoint_.names();
    has_prefix_ = std::ranges::any_of(names, [](std::string_view name) { return name.starts_with("model."); });
    for (const std::string_view name : names) {
      const StoredTensor& tensor = *checkpoint_.find(name);
      const std::optional<QuantisedSource::Linear> linear = TRY(quantised_.find(tensor));
      if (!linear) {
        TRY(add(tensor, plain_name(name)));
      } else if (linear->numbers.made != nullptr) {
        linears_.push_back(*linear);
        linear_by_numbers_.emplace(&linears_.back().numbers, &linears_.back());
        TRY(add(linears_.back().numbers, plain_name(linear->numbers.name)));
      }
    }
    for (auto& [name, stack] : stacks_) TRY(add_stack(name, stack));
    if (draft_tensors_ > 0)
      content_.notes.push_back(
          fmt::format("{} tensors of next-token layers are left out: files of architecture {} have none",
                      draft_tensors_, content_.architecture));
    if (tower_tensors_ > 0)
      content_.notes.push_back(fmt::format(
          "{} tensors of vision and sound towers are left out: the file has the language model", tower_tensors_));
    if (unused_tensors_ > 0)
      content_.notes.push_back(fmt::format(
          "{} tensors are left out: their layers use the keys and values of earlier layers", unused_tensors_));
    // GGUF files list the tensors layer by layer.
    std::ranges::stable_sort(content_.tensors, {}, [](const GgufSourceTensor& tensor) {
      return parse_tensor_name(tensor.name).layer.value_or(tensor.name == "token_embd.weight" ? -2 : -1);
    });
    return ok_status();
  }

 private:
  std::string quoted(const StoredTensor& tensor) const {
    return fmt::format("{}: tensor {}", checkpoint_.model_path(), clip_text(Json(tensor.name).dump()));
  }

  // Returns the name with the prefix "model.". If the checkpoint's names have the prefix config_.tensor_prefix,
  // "model." replaces it, and names without that prefix stay as they are. If the checkpoint's names have no prefix,
  // "model." is put before every name.
  std::string plain_name(std::string_view name) const {
    if (!has_prefix_) return "model." + std::string(name);
    if (name.starts_with(config_.tensor_prefix))
      return "model." + std::string(name.substr(config_.tensor_prefix.size()));
    return std::string(name);
  }

  // Returns whether the tensor would compute keys or values in a layer that uses those of an earlier layer. Published
  // checkpoints of Gemma 4 have such tensors.
  bool is_unused(std::int64_t layer, std::string_view rest) const {
    constexpr std::string_view kKeysAndValues[] = {"self_attn.k_proj.", "self_attn.k_norm.", "self_attn.v_proj."};
    return config_.gemma4 && gemma4_layer_shares_cache(config_, layer) &&
           std::ranges::any_of(kKeysAndValues, [&](std::string_view prefix) { return rest.starts_with(prefix); });
  }

  Status add(const StoredTensor& tensor, const std::string& name) {
    if (std::ranges::any_of(kTowers, [&](std::string_view prefix) { return name.starts_with(prefix); })) {
      ++tower_tensors_;
      return ok_status();
    }
    // Old checkpoints store this buffer. Its content follows from the config, so it is left out.
    if (name.ends_with("rotary_emb.inv_freq")) return ok_status();
    if (name == "lm_head.weight" && config_.tie_word_embeddings) {
      content_.notes.emplace_back("lm_head.weight is left out: the head is the embeddings");
      return ok_status();
    }
    OwnName own = parse_own_name(name);
    if (own.layer && *own.layer >= config_.num_hidden_layers) {
      ++draft_tensors_;
      return ok_status();
    }
    if (own.layer && is_unused(*own.layer, own.rest)) {
      ++unused_tensors_;
      return ok_status();
    }
    if (drafts_apart_ && name.starts_with(kDraft)) {
      own = parse_own_name("model." + name.substr(kDraft.size()));  // the numbers of next-token layers count from 0
      own.layer = config_.num_hidden_layers + own.layer.value_or(0);
      if (own.rest.starts_with('/')) own.rest = "/" + name;
    }
    if (own.layer && !own.expert && own.rest.starts_with(kFused)) return add_fused(tensor, *own.layer, own.rest);
    const TensorNameRule* rule = find_rule_of_own(own.rest, own.layer.has_value(), names_);
    if (rule == nullptr)
      return unimplemented(
          fmt::format("{} has no place in a GGUF file of architecture {}", quoted(tensor), content_.architecture));
    if (!type_of(tensor.dtype) || tensor.shape.empty())
      return unimplemented(fmt::format("{}: type is {}, shape {}; accepted: F32, F16 and BF16, one dimension or more",
                                       quoted(tensor), stored_dtype_name(tensor.dtype), shape_text(tensor.shape)));
    const std::string gguf = own.layer ? fmt::format("blk.{}.{}", *own.layer, rule->gguf) : std::string(rule->gguf);
    switch (rule->form) {
      case Form::kSame: return add_rows(gguf, tensor, {});
      case Form::kLessOne: return add_rows(gguf, tensor, {.rows = {}, .cols = {}, .change = NumberChange::kPlusOne});
      case Form::kQueryRows: return add_pairs(gguf, tensor, config_.num_attention_heads);
      case Form::kKeyRows: return add_pairs(gguf, tensor, config_.num_key_value_heads);
      case Form::kExperts: stacks_[gguf].emplace(own.expert.value_or(0), &tensor); return ok_status();
      case Form::kRow:
      case Form::kValueRows:
      case Form::kValueHeads:
      case Form::kValueColumns:
      case Form::kMixedRows:
      case Form::kConvolution:
      case Form::kDecay: return add_of_net(gguf, tensor, rule->form);
      default:
        return unimplemented(fmt::format("{} cannot be written into a GGUF file of architecture {}", quoted(tensor),
                                         content_.architecture));
    }
  }

  // Returns the tensor's elements as numbers.
  static std::shared_ptr<const TensorElements> numbers_of(const StoredTensor& tensor) {
    return tensor.made != nullptr ? tensor.made : make_rows({.matrices = {matrix_of(tensor)}}, {});
  }

  // Returns the quantised linear whose numbers are in `tensor`. Returns null if `tensor` does not belong to a quantised
  // linear.
  const QuantisedSource::Linear* linear_of(const StoredTensor& tensor) const {
    const auto found = linear_by_numbers_.find(&tensor);
    return found != linear_by_numbers_.end() ? found->second : nullptr;
  }

  // Adds `tensor` after permuting its rows and applying a function to each number, as `arrangement` says. If
  // `arrangement` changes nothing and the checkpoint stores the elements themselves, the writer can copy the tensor's
  // bytes.
  Status add_rows(const std::string& name, const StoredTensor& tensor, const RowArrangement& arrangement) {
    const bool vector = tensor.shape.size() == 1 && !arrangement.rows.is_same();
    const bool same = arrangement.rows.is_same() && arrangement.change == NumberChange::kNone;
    std::shared_ptr<const TensorElements> numbers = numbers_of(tensor);
    if (!same) numbers = make_reordered(std::move(numbers), vector ? 1 : tensor.shape.back(), arrangement);
    add_made(name, tensor, tensor.shape, std::move(numbers));
    if (same && tensor.made == nullptr) content_.tensors.back().rows = tensor.data.data();
    return ok_status();
  }

  // Adds a tensor of the query or key projection. A GGUF file stores the n rows of a head in the order 0, n/2, 1, n/2 +
  // 1, and so on.
  Status add_pairs(const std::string& name, const StoredTensor& tensor, std::int64_t heads) {
    const std::int64_t rows = tensor.shape[0];
    if (rows % (2 * heads) != 0)
      return data_loss(
          fmt::format("{}: shape is {}; accepted: a number of rows that is a multiple of twice the {} heads",
                      quoted(tensor), shape_text(tensor.shape), heads));
    return add_rows(name, tensor, {.rows = {.first = 0, .a = rows / heads / 2, .b = 2}, .cols = {}});
  }

  Status misfit(const StoredTensor& tensor, const std::string& accepted) const {
    return data_loss(fmt::format("{}: shape is {}; accepted: {}", quoted(tensor), shape_text(tensor.shape), accepted));
  }

  void add_made(std::string name, const StoredTensor& tensor, std::vector<std::int64_t> shape,
                std::shared_ptr<const TensorElements> numbers) {
    content_.tensors.push_back({.name = std::move(name),
                                .shape = std::move(shape),
                                .stored = type_of(tensor.dtype).value_or(BlockType::kMXFP4),
                                .rows = nullptr,
                                .numbers = std::move(numbers)});
    if (const QuantisedSource::Linear* linear = linear_of(tensor)) {
      content_.tensors.back().format = linear->format;
      content_.tensors.back().bytes = linear->bytes;
    }
  }

  // Adds a tensor of a gated delta net. A GGUF file stores the first value head of every key head, then the second
  // value head of every key head, and so on.
  Status add_of_net(const std::string& name, const StoredTensor& tensor, Form form) {
    if (form == Form::kRow) {
      if (tensor.shape.size() != 2 || tensor.shape[0] != 1) return misfit(tensor, "one row");
      add_made(name, tensor, {tensor.shape[1]}, numbers_of(tensor));
      return ok_status();
    }
    const DeltaNetConfig& net = *config_.delta_net;
    const bool mixed = form == Form::kMixedRows || form == Form::kConvolution;
    const bool single = form == Form::kValueHeads || form == Form::kDecay;
    const StoredOrder order{.first = mixed ? 2 * net.key_heads * net.key_head_dim : 0,
                            .a = net.value_heads / net.key_heads,
                            .b = net.key_heads,
                            .unit = single ? 1 : net.value_head_dim};
    const bool columns = form == Form::kValueColumns;
    const std::int64_t expected = order.first + net.value_heads * order.unit;
    if ((columns ? tensor.shape.back() : tensor.shape[0]) != expected)
      return misfit(tensor, fmt::format("{} {}", expected, columns ? "columns" : "rows"));
    RowArrangement arrangement{.rows = columns ? StoredOrder{} : order, .cols = columns ? order : StoredOrder{}};
    if (form == Form::kDecay) arrangement.change = NumberChange::kNegativeOfExponential;
    std::vector<std::int64_t> shape = tensor.shape;
    if (form == Form::kConvolution && shape.size() == 3) shape.erase(shape.begin() + 1);
    const std::int64_t cols = shape.size() == 1 ? 1 : shape.back();
    add_made(name, tensor, std::move(shape), make_reordered(numbers_of(tensor), cols, arrangement));
    return ok_status();
  }

  static StoredBlocks matrix_of(const StoredTensor& tensor) {
    return {*type_of(tensor.dtype), tensor.data.data(), tensor.shape.back()};
  }

  // Adds a tensor that contains matrices of all experts of a layer. `rest` is the part of the tensor's name after the
  // layer's number. If the tensor contains gate and up, the rows of gate and up alternate in GPT-OSS. In other families
  // each expert has first all rows of gate and then all rows of up.
  Status add_fused(const StoredTensor& tensor, std::int64_t layer, std::string_view rest) {
    const std::string_view kind = rest.substr(kFused.size());
    const auto name = [&](const char* part, const char* suffix) {
      return fmt::format("blk.{}.ffn_{}_exps.{}", layer, part, suffix);
    };
    const bool gpt_oss = content_.architecture == "gpt-oss";
    if (gpt_oss && kind.ends_with("_scales")) return ok_status();  // the scales are read together with the values
    if (gpt_oss && kind == "gate_up_proj_blocks") {
      TRY(add_mxfp4(name("gate", "weight"), tensor, 0, 2));
      return add_mxfp4(name("up", "weight"), tensor, 1, 2);
    }
    if (gpt_oss && kind == "down_proj_blocks") return add_mxfp4(name("down", "weight"), tensor, 0, 1);
    if (gpt_oss && kind == "gate_up_proj_bias" && tensor.shape.size() == 2 && type_of(tensor.dtype)) {
      const std::vector<std::int64_t> shape{tensor.shape[0], tensor.shape[1] / 2};
      // The biases of gate and up alternate, so they form a matrix with two columns: the first for gate, the second for
      // up.
      const StoredBlocks pairs(*type_of(tensor.dtype), tensor.data.data(), 2);
      add_made(name("gate", "bias"), tensor, shape, make_column(pairs, 0));
      add_made(name("up", "bias"), tensor, shape, make_column(pairs, 1));
      return ok_status();
    }
    if (gpt_oss && kind == "down_proj_bias" && type_of(tensor.dtype)) return add_rows(name("down", "bias"), tensor, {});
    if (content_.architecture == "qwen35moe" && kind == "down_proj" && type_of(tensor.dtype))
      return add_rows(name("down", "weight"), tensor, {});
    if (content_.architecture == "qwen35moe" && kind == "gate_up_proj" && tensor.shape.size() == 3 &&
        type_of(tensor.dtype)) {
      add_half_of_rows(name("gate", "weight"), tensor, 0);
      add_half_of_rows(name("up", "weight"), tensor, 1);
      return ok_status();
    }
    return unimplemented(
        fmt::format("{} has no place in a GGUF file of architecture {}", quoted(tensor), content_.architecture));
  }

  // Adds the first or the second half of each expert's rows.
  void add_half_of_rows(const std::string& name, const StoredTensor& tensor, std::int64_t half) {
    const std::int64_t rows = tensor.shape[1] / 2;
    std::vector<std::shared_ptr<const TensorElements>> parts;
    for (std::int64_t expert = 0; expert < tensor.shape[0]; ++expert)
      parts.push_back(make_rows({.matrices = {matrix_of(tensor).from_row((2 * expert + half) * rows)}}, {}));
    add_made(name, tensor, {tensor.shape[0], rows, tensor.shape[2]},
             make_stack(std::move(parts), rows * tensor.shape[2]));
  }

  // Adds the rows `first`, `first` + `step`, `first` + 2 · `step`, … of each MXFP4 expert.
  Status add_mxfp4(const std::string& name, const StoredTensor& values, std::int64_t first, std::int64_t step) {
    const std::string stem = values.name.substr(0, values.name.size() - std::string_view("blocks").size());
    const StoredTensor* exponents = checkpoint_.find(stem + "scales");
    const std::vector<std::int64_t>& shape = values.shape;
    if (shape.size() != 4 || shape[3] != kMxfp4Block / 2 || shape[1] % step != 0 || values.dtype != StoredDtype::kU8)
      return misfit(values, "[experts, rows, blocks, 16] of U8");
    if (exponents == nullptr || exponents->num_elements() != shape[0] * shape[1] * shape[2] ||
        exponents->dtype != StoredDtype::kU8)
      return data_loss(
          fmt::format("{}: there is no tensor {}scales with an exponent for each block", quoted(values), stem));
    const std::int64_t cols = shape[2] * kMxfp4Block;
    add_made(name, values, {shape[0], shape[1] / step, cols},
             make_mxfp4_numbers({.values = values.data.data(),
                                 .exponents = exponents->data.data(),
                                 .cols = cols,
                                 .first = first,
                                 .step = step}));
    return ok_status();
  }

  using Stack = std::map<std::int64_t, const StoredTensor*>;  // the key is the expert

  Status add_stack(const std::string& name, const Stack& stack) {
    const StoredTensor& first = *stack.begin()->second;
    const std::int64_t experts = config_.moe ? config_.moe->num_experts : 0;
    std::vector<std::shared_ptr<const TensorElements>> parts;
    std::int64_t bytes = 0;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      const auto found = stack.find(expert);
      if (found == stack.end())
        return data_loss(fmt::format("{}: expert {} of {} is missing beside {}; accepted: {} experts",
                                     checkpoint_.model_path(), expert, name, first.name, experts));
      const StoredTensor& tensor = *found->second;
      if (tensor.shape != first.shape || tensor.shape.size() != 2)
        return data_loss(fmt::format("{}: shape is {}; accepted: that of {}, {}, and two dimensions", quoted(tensor),
                                     shape_text(tensor.shape), first.name, shape_text(first.shape)));
      parts.push_back(numbers_of(tensor));
      if (const QuantisedSource::Linear* linear = linear_of(tensor)) bytes += linear->bytes;
    }
    if (std::ssize(stack) != experts)
      return data_loss(fmt::format("{}: there are {} experts of {}; accepted: {}", checkpoint_.model_path(),
                                   stack.size(), name, experts));
    add_made(name, first, {experts, first.shape[0], first.shape[1]},
             make_stack(std::move(parts), first.num_elements()));
    content_.tensors.back().bytes = bytes;
    return ok_status();
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  GgufContent& content_;
  std::span<const TensorNameRule> names_;
  bool drafts_apart_;
  QuantisedSource quantised_;
  std::deque<QuantisedSource::Linear> linears_;
  std::unordered_map<const StoredTensor*, const QuantisedSource::Linear*> linear_by_numbers_;
  std::map<std::string, Stack> stacks_;
  bool has_prefix_ = false;
  std::int64_t draft_tensors_ = 0;
  std::int64_t tower_tensors_ = 0;
  std::int64_t unused_tensors_ = 0;
};

}  // namespace

Status add_folder_tensors(const Checkpoint& checkpoint, const ModelConfig& config, GgufContent& content) {
  return FolderTensors(checkpoint, config, content).add_all();
}

}  // namespace tessera
