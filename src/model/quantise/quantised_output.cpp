#include "tessera/model/quantise/quantised_output.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "tessera/model/config/config.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/gguf/importance_matrix.h"
#include "tessera/model/model.h"
#include "tessera/model/quantise/file_types.h"
#include "tessera/model/quantise/folder_output.h"
#include "tessera/model/quantise/gguf_output.h"

namespace tessera {

std::int64_t QuantisedOutput::bytes_before() const {
  std::int64_t bytes = 0;
  for (const QuantisedTensor& tensor : tensors_) bytes += tensor.bytes_before;
  return bytes;
}

std::int64_t QuantisedOutput::bytes_after() const {
  std::int64_t bytes = 0;
  for (const QuantisedTensor& tensor : tensors_) bytes += tensor.bytes_after;
  return bytes;
}

std::int64_t QuantisedOutput::elements() const {
  std::int64_t elements = 0;
  for (const QuantisedTensor& tensor : tensors_) {
    std::int64_t of_tensor = 1;
    for (const std::int64_t size : tensor.shape) of_tensor *= size;
    elements += of_tensor;
  }
  return elements;
}

std::optional<OutputForm> output_form(std::string_view type) {
  if (find_file_type(type) != nullptr) return OutputForm::kGguf;
  if (find_folder_type(type) != nullptr) return OutputForm::kSafetensors;
  return std::nullopt;
}

std::string output_type_names() {
  std::string names;
  for (const GgufFileType& type : gguf_file_types()) {
    if (!names.empty()) names += ", ";
    names += type.name;
  }
  for (const FolderType& type : folder_types()) names += fmt::format(", {}", type.name);
  return names;
}

namespace {

// Checks that the checkpoint has the model's tensors, with their shapes. Quantised tensors are checked later, when they
// are read.
Status check_tensors(const Checkpoint& checkpoint, const ModelConfig& config, const ir::OpTable& ops,
                     const FamilyRegistry& families) {
  ModelOptions options;
  options.stored_type = [&](std::string_view tensor) -> std::optional<StoredDtype> {
    const StoredTensor* stored = checkpoint.find(tensor);
    return stored != nullptr ? std::optional(stored->dtype) : std::nullopt;
  };
  const ModelGraphs graphs = TRY(build_model(config, options, ops, families).with_context(checkpoint.model_path()));
  for (const WeightSpec& spec : all_weights(graphs)) {
    for (const WeightPart& part : spec.parts) {
      const bool numbers =
          std::holds_alternative<PlainStorage>(part.storage) || std::holds_alternative<StridedStorage>(part.storage);
      if (numbers) TRY(checkpoint.get(part.tensor, stored_shape(part)));
    }
  }
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<QuantisedOutput>> plan_quantised(const std::string& model_path, std::string_view type,
                                                        const ir::OpTable& ops, const FamilyRegistry& families,
                                                        const ImportanceMatrix* importance) {
  const std::optional<std::string> gguf = TRY(find_gguf(model_path));
  if (const FolderType* const folder_type = find_folder_type(type)) {
    if (importance != nullptr && !uses_importance(*folder_type))
      return invalid_argument(
          fmt::format("{}: an importance matrix has no effect on {}; accepted: int4, nvfp4, or a type of GGUF files",
                      importance->source, type));
    if (gguf)
      return unimplemented(
          fmt::format("{} as {}: the input is a GGUF file; accepted: a folder with safetensors", *gguf, type));
    const ModelConfig config = TRY(ModelConfig::read(model_path, families));
    return make_folder_output(model_path, config, *folder_type, ops, families, importance);
  }
  const GgufFileType& file_type = *find_file_type(type);
  if (gguf) {
    auto model = std::make_shared<const GgufModel>(TRY(GgufModel::open(*gguf)));
    GgufContent content = TRY(content_of_gguf(*model));
    content.model = std::move(model);
    return make_gguf_output(std::move(content), file_type, importance);
  }
  const ModelConfig config = TRY(ModelConfig::read(model_path, families));
  GgufContent content = TRY(content_of_folder(model_path, config));
  TRY(check_tensors(*content.checkpoint, config, ops, families));
  return make_gguf_output(std::move(content), file_type, importance);
}

}  // namespace tessera
