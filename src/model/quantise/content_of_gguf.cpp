#include <fmt/format.h>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/model/gguf/made_tensors.h"
#include "tessera/model/quantise/gguf_content.h"

namespace tessera {
namespace {

// Returns whether the key describes the source file and not the model.
bool is_of_file(std::string_view key) {
  return key.starts_with("split.") || key.starts_with("quantize.") || key == "general.file_type" ||
         key == "general.quantization_version" || key == "general.alignment";
}

}  // namespace

std::int64_t GgufSourceTensor::elements() const {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

Status GgufContent::check_whole() const {
  if (model != nullptr)
    for (const GgufFile& file : model->files())
      if (file.mapping() != nullptr) TRY(file.mapping()->check_whole());
  return checkpoint != nullptr ? checkpoint->check_whole() : ok_status();
}

Result<GgufContent> content_of_gguf(const GgufModel& model) {
  GgufContent content;
  content.source = model.path();
  content.architecture = TRY(model.string("general.architecture"));
  const std::string prefix = content.architecture + ".";
  content.layers = TRY(model.optional_integer(prefix + "block_count")).value_or(0);
  content.draft_layers = TRY(model.optional_integer(prefix + "nextn_predict_layers")).value_or(0);
  content.experts = TRY(model.optional_integer(prefix + "expert_count")).value_or(0);
  const GgufValue* heads = model.find(prefix + "attention.head_count");
  const GgufValue* kv_heads = model.find(prefix + "attention.head_count_kv");
  // In hybrid models both keys are lists with a head count for each layer. For such models queries_per_key stays 1.
  if (heads != nullptr && kv_heads != nullptr && heads->integer().value_or(0) > 0 &&
      kv_heads->integer().value_or(0) > 0)
    content.queries_per_key = *heads->integer() / *kv_heads->integer();
  const GgufFile& first = model.files().front();
  for (const std::string_view key : first.keys())
    if (!is_of_file(key)) content.metadata.set(key, *first.find(key));
  for (const GgufFile& file : model.files()) {
    for (const GgufTensor& tensor : file.tensors()) {
      GgufSourceTensor source{.name = tensor.name,
                              .shape = tensor.shape,
                              .stored = tensor.type,
                              .rows = tensor.data.data(),
                              .numbers = nullptr};
      if (source.shape.empty()) source.shape = {1};
      if (!StoredBlocks::is_readable(tensor.type))
        return unimplemented(fmt::format("{}: tensor {}: type is {}; accepted: types for the weights of models",
                                         file.path(), clip_text(Json(tensor.name).dump()),
                                         block_type_info(tensor.type).name));
      source.numbers = make_rows({.matrices = {{tensor.type, tensor.data.data(), source.shape.back()}}}, {});
      content.tensors.push_back(std::move(source));
    }
  }
  return content;
}

}  // namespace tessera
