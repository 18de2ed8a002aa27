#include "tessera/model/gguf/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "tessera/model/config/config.h"
#include "tessera/model/gguf/config_writer.h"
#include "tessera/model/gguf/gguf_architectures.h"
#include "tessera/model/gguf/gguf_projector.h"
#include "tessera/model/gguf/gguf_rope.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {
namespace {

// Control tokens that end a turn in published chat formats. They count as end tokens even if the metadata do not name
// them.
constexpr std::array<std::string_view, 11> kTurnEnds = {"<|eot_id|>",      "<|eom_id|>",    "<|im_end|>",
                                                        "<end_of_turn>",   "<turn|>",       "<|return|>",
                                                        "<|call|>",        "<|endoftext|>", "<｜end▁of▁sentence｜>",
                                                        "<|end_of_text|>", "<|end|>"};
constexpr std::int64_t kControl = 3;  // the number by which tokenizer.ggml.token_type marks control tokens
// In the Harmony format "<|end|>" ends a message of an answer, and "<|return|>" ends the whole answer. If a vocabulary
// has "<|return|>", "<|end|>" is therefore not an end token.
constexpr std::string_view kEndOfMessage = "<|end|>";
constexpr std::string_view kEndOfAnswer = "<|return|>";

Status write_tokens(ConfigWriter& writer) {
  const GgufModel& model = writer.model();
  Json::Array ends;
  for (const TokenId id : TRY(gguf_end_tokens(model))) ends.emplace_back(static_cast<std::int64_t>(id.value()));
  writer.set("eos_token_id", std::move(ends));
  for (const auto& [key, member] : {std::pair("tokenizer.ggml.bos_token_id", "bos_token_id"),
                                    std::pair("tokenizer.ggml.padding_token_id", "pad_token_id")})
    if (const std::optional<std::int64_t> id = TRY(model.optional_integer(key))) writer.set(member, *id);
  return ok_status();
}

// Returns the type to compute in, as config.json spells it. Quantised files get bfloat16, because most of them are made
// from bfloat16 models.
std::string_view dtype_of(BlockType embeddings) {
  switch (embeddings) {
    case BlockType::kF32: return "float32";
    case BlockType::kF16: return "float16";
    default: return "bfloat16";
  }
}

bool has_type(const GgufModel& model, BlockType type) {
  return std::ranges::any_of(model.files(), [&](const GgufFile& file) {
    return std::ranges::find(file.tensors(), type, &GgufTensor::type) != file.tensors().end();
  });
}

Status check_required(const ConfigWriter& writer) {
  constexpr std::pair<std::string_view, std::string_view> kRequired[] = {
      {"hidden_size", "embedding_length"},
      {"num_attention_heads", "attention.head_count"},
      {"max_position_embeddings", "context_length"},
      {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
  };
  for (const auto& [member, key] : kRequired)
    if (writer.config().find(member) == nullptr) return writer.wrong(key, "a number");
  return ok_status();
}

// Writes the members that all architectures have.
Status write_common(ConfigWriter& writer, bool sizes_by_layer) {
  const GgufTensor* embeddings = writer.model().find_tensor(kGgufEmbeddings);
  if (embeddings == nullptr || embeddings->shape.size() != 2)
    return invalid_argument(fmt::format("{}: tensor {} is {}; accepted: a matrix", writer.model().path(),
                                        kGgufEmbeddings,
                                        embeddings == nullptr ? "missing" : shape_text(embeddings->shape)));
  writer.set("vocab_size", embeddings->shape[0]);
  writer.set("dtype", std::string(dtype_of(embeddings->type)));
  const std::int64_t drafts = TRY(writer.optional_integer("nextn_predict_layers")).value_or(0);
  const std::int64_t blocks = TRY(writer.integer("block_count"));
  if (drafts < 0 || drafts >= blocks)
    return writer.wrong("nextn_predict_layers", fmt::format("fewer than block_count ({})", blocks));
  writer.set("num_hidden_layers", blocks - drafts, drafts == 0 ? "block_count" : "");
  TRY(writer.copy_integer("embedding_length", "hidden_size"));
  TRY(writer.copy_integer("attention.head_count", "num_attention_heads"));
  if (!sizes_by_layer) {
    TRY(writer.copy_integer("feed_forward_length", "intermediate_size"));
    TRY(writer.copy_integer("attention.head_count_kv", "num_key_value_heads"));
  }
  TRY(writer.copy_integer("attention.key_length", "head_dim"));
  TRY(writer.copy_integer("context_length", "max_position_embeddings"));
  TRY(writer.copy_number("attention.layer_norm_rms_epsilon", "rms_norm_eps"));
  writer.set("tie_word_embeddings", !writer.has_tensor("output.weight"));
  const std::int64_t heads = TRY(writer.integer("attention.head_count"));
  if (heads < 1) return writer.wrong("attention.head_count", "1 or more");
  const std::int64_t head_dim =
      TRY(writer.optional_integer("attention.key_length")).value_or(TRY(writer.integer("embedding_length")) / heads);
  writer.set("rope_parameters", TRY(gguf_rope_parameters(writer, head_dim)));
  return write_tokens(writer);
}

}  // namespace

Status ConfigWriter::copy_integer(std::string_view name, std::string member) {
  sources_.try_emplace(member, name);
  if (const std::optional<std::int64_t> value = TRY(optional_integer(name))) set(std::move(member), *value, name);
  return ok_status();
}

Status ConfigWriter::copy_number(std::string_view name, std::string member) {
  sources_.try_emplace(member, name);
  if (const std::optional<double> value = TRY(optional_number(name))) set(std::move(member), *value, name);
  return ok_status();
}

namespace {

Status write_config(ConfigWriter& writer, const GgufArchitecture& architecture) {
  const GgufModel& model = writer.model();
  const GgufImages* images = nullptr;
  if (model.projector() != nullptr) images = TRY(projector_images(*model.projector(), architecture));
  TRY(write_common(writer, architecture.sizes_by_layer));
  TRY(architecture.write(writer));
  TRY(check_required(writer));
  if (architecture.keeps_nvfp4 && has_type(model, BlockType::kNVFP4))
    writer.set("quantization_config", Json::object().set("quant_method", "modelopt").set("quant_algo", "NVFP4"));
  if (images != nullptr) TRY(write_images(writer, *images));
  return ok_status();
}

}  // namespace

Result<Json> gguf_config(const GgufModel& model) {
  const GgufArchitecture* architecture = TRY(gguf_architecture(model));
  ConfigWriter writer(model, std::string(architecture->name));
  TRY(write_config(writer, *architecture));
  return std::move(writer).take();
}

Status in_gguf_words(Status status, const GgufModel& model) {
  const Result<const GgufArchitecture*> architecture = gguf_architecture(model);
  if (status.ok() || !architecture.ok()) return status;
  ConfigWriter writer(model, std::string((*architecture)->name));
  if (!write_config(writer, **architecture).ok()) return status;
  std::map<std::string, std::string> sources = writer.sources();
  sources["rope_parameters.rope_theta"] = "rope.freq_base";
  std::string message = status.message();
  for (const auto& [member, key] : sources) {
    const std::string field = fmt::format("field \"{}\"", member);
    const std::size_t at = message.find(field);
    if (!key.empty() && at != std::string::npos)
      message.replace(at, field.size(), fmt::format("metadata {}", writer.key(key)));
  }
  return {status.code(), std::move(message)};
}

Result<std::vector<TokenId>> gguf_end_tokens(const GgufModel& model) {
  std::vector<std::int64_t> ids;
  for (const char* name : {"eos", "eot", "eom"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    const std::optional<std::int64_t> id = TRY(model.optional_integer(key));
    if (!id) continue;
    if (*id < 0 || *id >= ModelConfig::kMaxVocabSize)
      return model.wrong(key, fmt::format("0 to {}", ModelConfig::kMaxVocabSize - 1));
    ids.push_back(*id);
  }
  const GgufValue* tokens = model.find("tokenizer.ggml.tokens");
  const GgufValue* types = model.find("tokenizer.ggml.token_type");
  const auto texts = tokens != nullptr ? tokens->strings() : std::nullopt;
  const auto kinds = types != nullptr ? types->integers() : std::nullopt;
  if (texts && kinds && texts->size() == kinds->size()) {
    const bool harmony = std::ranges::find(*texts, kEndOfAnswer) != texts->end();
    for (std::size_t id = 0; id < texts->size() && id < static_cast<std::size_t>(ModelConfig::kMaxVocabSize); ++id)
      if ((*kinds)[id] == kControl && std::ranges::find(kTurnEnds, (*texts)[id]) != kTurnEnds.end() &&
          !(harmony && (*texts)[id] == kEndOfMessage))
        ids.push_back(static_cast<std::int64_t>(id));
  }
  std::vector<TokenId> ends;
  std::unordered_set<std::int64_t> seen;
  for (const std::int64_t id : ids)
    if (seen.insert(id).second) ends.emplace_back(static_cast<std::int32_t>(id));
  return ends;
}

}  // namespace tessera
