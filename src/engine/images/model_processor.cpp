#include "tessera/engine/images/model_processor.h"

#include "tessera/base/json.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/gguf/gguf_projector.h"
#include "tessera/model/gguf/projector_types.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {

namespace {

Result<ImageProcessorConfig> processor_of_projector(const std::string& path) {
  const GgufModel projector = TRY(GgufModel::open(path));
  Json settings = TRY(projector_processor(projector));
  const std::string type = TRY(projector_type(projector));
  const ImageProcessorConfig usual = default_processor_config(type == kQwen2Projector    ? "qwen2_vl"
                                                              : type == kQwen25Projector ? "qwen2_5_vl"
                                                                                         : "qwen3_vl");
  if (settings.find("min_pixels") == nullptr) settings.set("min_pixels", usual.min_pixels);
  if (settings.find("max_pixels") == nullptr) settings.set("max_pixels", usual.max_pixels);
  return parse_processor_config(settings, path);
}

}  // namespace

Result<ImageProcessorConfig> read_model_processor(const std::filesystem::path& model, const std::string& projector) {
  if (!projector.empty()) return processor_of_projector(projector);
  const std::filesystem::path folder = model_folder(model.string());
  Result<ImageProcessorConfig> read = read_processor_config(folder / "preprocessor_config.json");
  if (read.ok() || read.status().code() != StatusCode::kNotFound) return read;
  const Json config = TRY(Json::read_file(config_file(model).string()));
  const Json* type = config.find("model_type");
  return default_processor_config(type != nullptr && type->is_string() ? type->as_string() : "");
}

}  // namespace tessera
