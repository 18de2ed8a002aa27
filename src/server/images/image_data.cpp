#include "tessera/server/images/image_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tessera/server/images/content_parts.h"

namespace tessera {
namespace {

bool is_empty(const Json& value) {
  return value.is_null() ||
         (value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(), is_empty));
}

// Reads the images of one prompt.
ApiResult<std::vector<GivenImage>> read_images(const Json& value, const std::string& param) {
  std::vector<GivenImage> images;
  const auto add = [&](const Json& source, const std::string& name) -> ApiStatus {
    images.push_back(TRY(read_image_source(source, name)));
    images.back().may_be_base64 = true;
    return api_ok();
  };
  if (is_empty(value)) return images;
  if (!value.is_array()) {
    TRY(add(value, param));
    return images;
  }
  for (std::size_t i = 0; i < value.as_array().size(); ++i)
    TRY(add(value.as_array()[i], fmt::format("{}[{}]", param, i)));
  return images;
}

}  // namespace

ApiResult<std::vector<std::vector<GivenImage>>> read_image_data(const ApiFields& fields, const ServedModel& model,
                                                                const Prompts& prompts) {
  std::vector<std::vector<GivenImage>> images(prompts.ids.size());
  const Json* value = fields.find("image_data");
  if (value == nullptr || is_empty(*value)) return images;
  if (!model.images) return fields.unsupported("image_data", "none, as this model reads no images");
  if (fields.find("input_embeds") != nullptr) return fields.unsupported("image_data", "none beside \"input_embeds\"");
  if (!prompts.batch) {
    images[0] = TRY(read_images(*value, "image_data"));
    return images;
  }
  if (!value->is_array() || value->as_array().size() != images.size()) {
    return fields.wrong("image_data",
                        fmt::format("a list of {}, an image, a list of images or null for each prompt", images.size()));
  }
  for (std::size_t i = 0; i < images.size(); ++i)
    images[i] = TRY(read_images(value->as_array()[i], fmt::format("image_data[{}]", i)));
  return images;
}

}  // namespace tessera
