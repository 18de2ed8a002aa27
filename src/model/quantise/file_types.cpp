#include "tessera/model/quantise/file_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "tessera/model/gguf/tensor_names.h"

namespace tessera {
namespace {

using Type = BlockType;

constexpr std::array kFileTypes = {
    GgufFileType{"F32", 0, Type::kF32},        GgufFileType{"F16", 1, Type::kF16},
    GgufFileType{"BF16", 32, Type::kBF16},     GgufFileType{"Q8_0", 7, Type::kQ8_0},
    GgufFileType{"Q6_K", 18, Type::kQ6_K},     GgufFileType{"Q5_K_M", 17, Type::kQ5_K},
    GgufFileType{"Q5_K_S", 16, Type::kQ5_K},   GgufFileType{"Q4_K_M", 15, Type::kQ4_K},
    GgufFileType{"Q4_K_S", 14, Type::kQ4_K},   GgufFileType{"Q3_K_L", 13, Type::kQ3_K},
    GgufFileType{"Q3_K_M", 12, Type::kQ3_K},   GgufFileType{"Q3_K_S", 11, Type::kQ3_K},
    GgufFileType{"Q2_K", 10, Type::kQ2_K},     GgufFileType{"Q5_1", 9, Type::kQ5_1},
    GgufFileType{"Q5_0", 8, Type::kQ5_0},      GgufFileType{"Q4_1", 3, Type::kQ4_1},
    GgufFileType{"Q4_0", 2, Type::kQ4_0},      GgufFileType{"IQ4_NL", 25, Type::kIQ4_NL},
    GgufFileType{"IQ4_XS", 30, Type::kIQ4_XS}, GgufFileType{"MXFP4_MOE", 38, Type::kMXFP4},
};

enum class Mix : std::uint8_t { kNone, kQ2, kQ3S, kQ3M, kQ3L, kQ4S, kQ4M, kQ5S, kQ5M, kQ40, kQ50, kIq4, kMxfp4 };

Mix mix_of(const GgufFileType& type) {
  constexpr std::pair<std::string_view, Mix> kMixes[] = {
      {"Q2_K", Mix::kQ2},        {"Q3_K_S", Mix::kQ3S}, {"Q3_K_M", Mix::kQ3M}, {"Q3_K_L", Mix::kQ3L},
      {"Q4_K_S", Mix::kQ4S},     {"Q4_K_M", Mix::kQ4M}, {"Q5_K_S", Mix::kQ5S}, {"Q5_K_M", Mix::kQ5M},
      {"Q4_0", Mix::kQ40},       {"Q5_0", Mix::kQ50},   {"IQ4_NL", Mix::kIq4}, {"IQ4_XS", Mix::kIq4},
      {"MXFP4_MOE", Mix::kMxfp4}};
  const auto* found = std::ranges::find(kMixes, type.name, &std::pair<std::string_view, Mix>::first);
  return found != std::end(kMixes) ? found->second : Mix::kNone;
}

bool is_plain(Type type) { return type == Type::kF32 || type == Type::kF16 || type == Type::kBF16; }

// Vectors, norms, routers and convolutions are never quantised. Returns whether the tensor is one of these.
bool stays_float32(const GgufSourceTensor& tensor) {
  return tensor.shape.size() < 2 || !tensor.name.ends_with(".weight") || tensor.name.ends_with("norm.weight") ||
         tensor.name.find("ffn_gate_inp") != std::string::npos || tensor.name.find("ssm_conv1d") != std::string::npos ||
         tensor.name.starts_with("rope_f");
}

// Returns whether a matrix keeps its type unless the whole file gets a plain type.
bool keeps_type(const GgufSourceTensor& tensor) { return tensor.name == "per_layer_model_proj.weight"; }

// Chooses the types. choose() must be called in the order of layers, because some choices depend on the number of
// earlier tensors.
class Chooser {
 public:
  Chooser(const GgufContent& content, const GgufFileType& type, bool importance)
      : content_(content), base_(type.base), mix_(mix_of(type)), importance_(importance) {
    for (const GgufSourceTensor& tensor : content.tensors) {
      const std::string_view rest = parse_tensor_name(tensor.name).rest;
      if (rest == "attn_v.weight" || rest == "attn_qkv.weight" || rest == "attn_kv_b.weight") ++values_;
      if (tensor.name == "output.weight") has_output_ = true;
    }
    // True for the 70B models of Llama 2 and 3 and for similar models. These have few value heads and many query heads,
    // so that more bits for the value matrices cost little.
    is_70b_ = content.layers == 80 && content.queries_per_key > 1 &&
              (content.architecture == "llama" || content.architecture == "qwen2");
  }

  Type choose(const GgufSourceTensor& tensor) {
    // Experts that were published in MXFP4 stay in MXFP4. Another type would not make them more accurate, and other
    // readers expect MXFP4.
    if (tensor.stored == Type::kMXFP4 && tensor.shape.size() == 3 && content_.architecture == "gpt-oss")
      return Type::kMXFP4;
    if (is_plain(base_)) return base_;
    if (keeps_type(tensor)) return tensor.stored;
    const GgufTensorName name = parse_tensor_name(tensor.name);
    if (tensor.name == "output.weight" || (!has_output_ && tensor.name == "token_embd.weight"))
      return of_output(tensor);
    if (mix_ == Mix::kMxfp4) return tensor.shape.size() == 3 ? Type::kMXFP4 : Type::kQ8_0;
    if (!name.layer) return base_;
    if (name.rest == "attn_v.weight") return of_values(value_index_++);
    if (name.rest == "attn_k.weight" && has_eight_experts()) return Type::kQ8_0;
    if (name.rest.starts_with("ffn_down")) return of_down(content_.experts > 1 ? *name.layer : down_index_++);
    if (name.rest == "attn_output.weight") return of_attention_output();
    if (name.rest == "attn_qkv.weight") return of_joined();
    return base_;
  }

 private:
  bool has_eight_experts() const { return content_.experts == 8; }

  // Returns whether a layer is one of those that profit most from more bits. These are the first and the last eighth of
  // the layers, and every third layer in between.
  static bool gains(std::int64_t index, std::int64_t count) {
    return index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2;
  }

  Type of_output(const GgufSourceTensor& tensor) const {
    if (mix_ == Mix::kMxfp4 || tensor.shape.back() % block_type_info(base_).elements != 0) return Type::kQ8_0;
    return base_ == Type::kQ8_0 ? base_ : Type::kQ6_K;
  }

  Type of_values(std::int64_t index) const {
    if (has_eight_experts()) return Type::kQ8_0;
    const Type type = of_values_of_mix(index);
    return is_70b_ && (type == Type::kQ3_K || type == Type::kQ4_K) ? Type::kQ5_K : type;
  }

  Type of_values_of_mix(std::int64_t index) const {
    switch (mix_) {
      case Mix::kQ2: return content_.queries_per_key >= 4 ? Type::kQ4_K : Type::kQ3_K;
      case Mix::kQ3M: return index < 2 ? Type::kQ5_K : Type::kQ4_K;
      case Mix::kQ3L: return Type::kQ5_K;
      case Mix::kQ4S: return index < 4 ? Type::kQ5_K : base_;
      case Mix::kQ4M:
      case Mix::kQ5M: return gains(index, values_) ? Type::kQ6_K : base_;
      case Mix::kIq4: return content_.queries_per_key >= 4 ? Type::kQ5_K : base_;
      default: return base_;
    }
  }

  Type of_down(std::int64_t index) const {
    const std::int64_t layers = content_.layers;
    switch (mix_) {
      case Mix::kQ2: return Type::kQ3_K;
      case Mix::kQ3M: return index < layers / 16 ? Type::kQ5_K : Type::kQ4_K;
      case Mix::kQ3L: return Type::kQ5_K;
      case Mix::kQ4M:
      case Mix::kQ5M: return gains(index, layers) ? Type::kQ6_K : base_;
      case Mix::kIq4: return index < layers / 8 && !importance_ ? Type::kQ5_K : base_;
      case Mix::kQ4S: return index < layers / 8 ? Type::kQ5_K : base_;
      case Mix::kQ40: return index < layers / 8 && importance_ ? Type::kQ4_1 : base_;
      case Mix::kQ50: return index < layers / 8 && importance_ ? Type::kQ5_1 : base_;
      default: return base_;
    }
  }

  Type of_attention_output() const {
    if (has_eight_experts()) {
      const bool small = mix_ == Mix::kQ2 || mix_ == Mix::kQ3S || mix_ == Mix::kQ3M || mix_ == Mix::kQ4S ||
                         mix_ == Mix::kQ4M || mix_ == Mix::kIq4;
      return small ? Type::kQ5_K : base_;
    }
    switch (mix_) {
      case Mix::kQ2: return Type::kQ3_K;
      case Mix::kQ3M: return Type::kQ4_K;
      case Mix::kQ3L: return Type::kQ5_K;
      default: return base_;
    }
  }

  Type of_joined() const {
    switch (mix_) {
      case Mix::kQ3M:
      case Mix::kQ3L: return Type::kQ4_K;
      case Mix::kQ4M: return Type::kQ5_K;
      case Mix::kQ5M: return Type::kQ6_K;
      default: return base_;
    }
  }

  const GgufContent& content_;
  Type base_;
  Mix mix_;
  bool importance_;
  bool has_output_ = false;
  bool is_70b_ = false;
  std::int64_t values_ = 0;  // number of value tensors in all layers
  std::int64_t value_index_ = 0;
  std::int64_t down_index_ = 0;
};

// Returns the type to use instead of `type` if `cols`, the length of a row, is not a multiple of `type`'s block size.
Type fallback_of(Type type, std::int64_t cols) {
  switch (type) {
    case Type::kQ2_K:
    case Type::kQ3_K:
    case Type::kIQ4_XS: type = Type::kIQ4_NL; break;
    case Type::kQ4_K: type = Type::kQ5_0; break;
    case Type::kQ5_K: type = Type::kQ5_1; break;
    case Type::kQ6_K: type = Type::kQ8_0; break;
    default: break;
  }
  return cols % block_type_info(type).elements == 0 ? type : Type::kF16;
}

}  // namespace

std::span<const GgufFileType> gguf_file_types() { return kFileTypes; }

const GgufFileType* find_file_type(std::string_view name) {
  const auto* found = std::ranges::find_if(kFileTypes, [&](const GgufFileType& type) {
    return std::ranges::equal(type.name, name, [](char a, char b) { return a == (b >= 'a' && b <= 'z' ? b - 32 : b); });
  });
  return found != kFileTypes.end() ? found : nullptr;
}

ChosenTypes choose_types(const GgufContent& content, const GgufFileType& type, bool importance) {
  ChosenTypes chosen{.types = std::vector<Type>(content.tensors.size(), Type::kF32), .notes = {}};
  std::vector<std::size_t> order(content.tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(
      order, {}, [&](std::size_t i) { return parse_tensor_name(content.tensors[i].name).layer.value_or(-1); });
  struct Misfit {
    std::int64_t count = 0;
    std::string first;
  };
  std::map<std::pair<std::string, std::string>, Misfit> misfits;
  Chooser chooser(content, type, importance);
  for (const std::size_t i : order) {
    const GgufSourceTensor& tensor = content.tensors[i];
    if (stays_float32(tensor)) {
      // If the source is a GGUF file, the tensor keeps its type. If the source is a folder, the tensor becomes F32.
      if (content.model != nullptr) chosen.types[i] = tensor.stored;
      continue;
    }
    const Type wanted = chooser.choose(tensor);
    const std::int64_t cols = tensor.shape.back();
    chosen.types[i] = wanted;
    if (cols % block_type_info(wanted).elements == 0) continue;
    chosen.types[i] = fallback_of(wanted, cols);
    Misfit& misfit =
        misfits[{std::string(block_type_info(wanted).name), std::string(block_type_info(chosen.types[i]).name)}];
    if (misfit.count++ == 0) misfit.first = fmt::format("{}, of {}", tensor.name, cols);
  }
  for (const auto& [types, misfit] : misfits)
    chosen.notes.push_back(
        fmt::format("{} of {} become {} instead of {}, whose blocks do not divide their rows; the first is {}",
                    misfit.count, content.tensors.size(), types.second, types.first, misfit.first));
  return chosen;
}

}  // namespace tessera
