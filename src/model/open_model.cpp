// Reads a model's config and opens its checkpoint. A model is a folder in Hugging Face's layout or a GGUF file.
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>

#include "tessera/base/json_fields.h"
#include "tessera/model/config/config.h"
#include "tessera/model/gguf/gguf_config.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/gguf/gguf_projector.h"
#include "tessera/model/gguf/gguf_tensors.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {

namespace fs = std::filesystem;

Result<ModelConfig> ModelConfig::read(const std::string& path, const FamilyRegistry& families,
                                      const GgufOptions& gguf_options) {
  if (const std::optional<std::string> gguf = TRY(find_gguf(path))) {
    const GgufModel model = TRY(GgufModel::open(*gguf, gguf_options));
    Result<ModelConfig> config = from_json(TRY(gguf_config(model)), *gguf, families);
    if (!config.ok()) return in_gguf_words(config.status(), model);
    return config;
  }
  const fs::path file = config_file(path);
  std::error_code error;
  if (!fs::exists(path, error))
    return not_found(
        fmt::format("{}: there is no such model; accepted: a folder in Hugging Face layout, a GGUF file, or "
                    "a config.json",
                    path));
  if (is_folder(path)) {
    if (!fs::exists(file, error)) {
      const bool adapter = fs::exists(fs::path(path) / "adapter_config.json", error);
      return not_found(
          fmt::format("{} has no config.json; accepted: a folder in Hugging Face layout, or with one GGUF file{}", path,
                      adapter ? adapter_hint() : std::string_view()));
    }
    // NVIDIA's exporter and the first versions of GPTQ's exporter describe quantisation in a separate file.
    for (const char* name : {"hf_quant_config.json", "quantize_config.json"}) {
      const fs::path beside = fs::path(path) / name;
      if (!fs::exists(beside, error)) continue;
      const Json settings = TRY(read_json_object(beside.string()));
      return from_json(TRY(read_json_object(file.string())), file.string(), families, &settings);
    }
  }
  return from_json(TRY(read_json_object(file.string())), file.string(), families);
}

Result<Checkpoint> Checkpoint::open(const std::string& model_path, const GgufOptions& gguf_options) {
  Checkpoint checkpoint;
  checkpoint.model_path_ = model_path;
  if (const std::optional<std::string> gguf = TRY(find_gguf(model_path))) {
    const GgufModel model = TRY(GgufModel::open(*gguf, gguf_options));
    TRY(checkpoint.add_file(TRY(read_gguf_tensors(model))));
    if (model.projector() != nullptr) TRY(checkpoint.add_file(TRY(read_projector_tensors(*model.projector()))));
  } else {
    std::error_code error;
    const bool is_file = fs::is_regular_file(model_path, error);
    TRY(checkpoint.open_folder(is_file ? model_folder(model_path) : model_path));
  }
  return checkpoint;
}

}  // namespace tessera
