#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "tessera/model/config/embedding_config.h"
#include "tessera/model/gguf/made_tensors.h"
#include "tessera/model/quantise/folder_sizes.h"
#include "tessera/model/quantise/folder_tensors.h"
#include "tessera/model/quantise/folder_tokenizer.h"
#include "tessera/model/quantise/gguf_content.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {
namespace {

// Returns the model's name. It is the folder's name or, if the folder is a snapshot in the hub's cache, the
// repository's name.
std::string name_of(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(folder, error);
  if (path.parent_path().filename() != "snapshots") return path.filename().string();
  const std::string repository = path.parent_path().parent_path().filename().string();  // "models--org--name"
  const std::size_t dashes = repository.rfind("--");
  return dashes == std::string::npos ? repository : repository.substr(dashes + 2);
}

// Writes the metadata that say how an embedding model pools.
Status write_pooling(const std::string& folder, const ModelConfig& config, GgufContent& content) {
  const std::optional<EmbeddingConfig> embedding = TRY(EmbeddingConfig::read(folder, config.hidden_size));
  if (!embedding) return ok_status();
  if (!embedding->normalise || embedding->pooling == Pooling::kNone)
    return unimplemented(
        fmt::format("{}: a GGUF file cannot express vectors that are not pooled or not normalised; "
                    "accepted: both, or a language model",
                    folder));
  constexpr std::pair<Pooling, std::int64_t> kNumbers[] = {
      {Pooling::kMean, 1}, {Pooling::kFirst, 2}, {Pooling::kLast, 3}};
  const auto* found = std::ranges::find(kNumbers, embedding->pooling, &std::pair<Pooling, std::int64_t>::first);
  content.metadata.set_uint32(content.architecture + ".pooling_type", found->second);
  return ok_status();
}

}  // namespace

Result<GgufContent> content_of_folder(const std::string& model_path, const ModelConfig& config) {
  const std::string folder = model_folder(model_path);
  const std::string file = config_file(model_path).string();
  GgufContent content;
  content.source = folder;
  content.architecture = TRY(architecture_of_folder(config, file));
  content.layers = config.num_hidden_layers;
  content.experts = config.moe ? config.moe->num_experts : 0;
  content.queries_per_key = config.num_attention_heads / config.num_key_value_heads;
  content.metadata.set_string("general.architecture", content.architecture);
  content.metadata.set_string("general.type", "model");
  content.metadata.set_string("general.name", name_of(folder));
  TRY(write_sizes(config, file, content.metadata));
  TRY(write_pooling(folder, config, content));
  TRY(write_tokenizer(folder, config, content.metadata, content.notes));
  auto checkpoint = std::make_shared<const Checkpoint>(TRY(Checkpoint::open(model_path)));
  TRY(add_folder_tensors(*checkpoint, config, content));
  content.checkpoint = std::move(checkpoint);
  if (const std::vector<float> factors = rope_factors(config); !factors.empty()) {
    content.tensors.insert(content.tensors.begin(), {.name = "rope_freqs.weight",
                                                     .shape = {std::ssize(factors)},
                                                     .stored = BlockType::kF32,
                                                     .rows = nullptr,
                                                     .numbers = make_numbers(factors)});
  }
  return content;
}

}  // namespace tessera
