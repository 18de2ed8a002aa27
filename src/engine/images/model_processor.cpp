#include "tessera/engine/images/model_processor.h"

#include "tessera/base/json.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {

Result<ImageProcessorConfig> read_model_processor(const std::filesystem::path& model) {
  const std::filesystem::path folder = model_folder(model.string());
  Result<ImageProcessorConfig> read = read_processor_config(folder / "preprocessor_config.json");
  if (read.ok() || read.status().code() != StatusCode::kNotFound) return read;
  const Json config = TRY(Json::read_file(config_file(model).string()));
  const Json* type = config.find("model_type");
  return default_processor_config(type != nullptr && type->is_string() ? type->as_string() : "");
}

}  // namespace tessera
