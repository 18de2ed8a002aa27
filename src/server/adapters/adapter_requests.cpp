#include "tessera/server/adapters/adapter_requests.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/request_fields.h"

namespace tessera {
namespace {

ApiResult<std::string> read_name(const ApiFields& fields) {
  std::optional<std::string> name = TRY(fields.string("lora_name"));
  if (!name || name->empty()) return fields.wrong("lora_name", "a name");
  return *std::move(name);
}

}  // namespace

ApiResult<LoadAdapterFields> read_load_adapter_fields(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kLoadAdapter, model.allow_unknown_fields));
  LoadAdapterFields read;
  read.load.name = TRY(read_name(fields));
  const std::vector<std::string> names = model.names();
  if (std::ranges::find(names, read.load.name) != names.end())
    return fields.wrong("lora_name", "a name that the model itself does not have");
  read.path = TRY(fields.string("lora_path")).value_or("");
  if (read.path.empty()) return fields.wrong("lora_path", "a folder that PEFT has written");
  read.load.replace = TRY(fields.boolean_or("load_inplace", false));
  read.load.pinned = TRY(fields.boolean_or("pinned", false));
  return read;
}

ApiResult<LoadAdapterRequest> read_load_adapter(const ServedModel& model, std::string_view body) {
  LoadAdapterFields read = TRY(read_load_adapter_fields(model, body));
  if (model.adapters == nullptr)
    return unsupported_field("lora_name", "the server serves no adapters; accepted: a server with --enable-lora");
  const Result<std::string> path = model.adapters->allowed_path(read.path);
  if (!path.ok()) return invalid_field("lora_path", path.status().message());
  LoadAdapterRequest request{.load = std::move(read.load)};
  for (Device* device : model.adapters->devices()) {
    Result<std::shared_ptr<const Adapter>> content = Adapter::load(*path, model.adapters->layout(), *device);
    if (!content.ok()) return invalid_field("lora_path", content.status().message());
    request.contents.push_back(*std::move(content));
  }
  return request;
}

ApiResult<UnloadAdapterRequest> read_unload_adapter(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kUnloadAdapter, model.allow_unknown_fields));
  return UnloadAdapterRequest{.name = TRY(read_name(fields))};
}

}  // namespace tessera
