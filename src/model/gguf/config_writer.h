// Builds a config.json from the metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_model.h"

namespace tessera {

class ConfigWriter {
 public:
  // Borrows `model`. `architecture` is the model's general.architecture. The keys of the model's sizes begin with this
  // name.
  ConfigWriter(const GgufModel& model, std::string architecture)
      : model_(model), prefix_(std::move(architecture) + ".") {}

  const GgufModel& model() const { return model_; }
  // Returns the full key: "llama.block_count".
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  Result<std::int64_t> integer(std::string_view name) const { return model_.integer(key(name)); }
  Result<std::optional<std::int64_t>> optional_integer(std::string_view name) const {
    return model_.optional_integer(key(name));
  }
  Result<std::optional<double>> optional_number(std::string_view name) const {
    return model_.optional_number(key(name));
  }
  Result<std::optional<std::string>> optional_string(std::string_view name) const {
    return model_.optional_string(key(name));
  }
  Status wrong(std::string_view name, std::string_view accepted) const { return model_.wrong(key(name), accepted); }
  bool has_tensor(std::string_view name) const { return model_.find_tensor(name) != nullptr; }

  // Sets a member. `from` is the name of the key from which the value comes. It is "" if the value comes from no key,
  // or from several.
  void set(std::string member, Json value, std::string_view from = {}) {
    sources_[member] = from;
    config_.set(std::move(member), std::move(value));
  }
  // Each function copies the metadata's value of the key `name` to a member of the config. If the value is absent, the
  // member is not set.
  Status copy_integer(std::string_view name, std::string member);
  Status copy_number(std::string_view name, std::string member);

  const Json& config() const { return config_; }
  // The name of the key of each member that was set, as set() got it.
  const std::map<std::string, std::string>& sources() const { return sources_; }
  Json take() && { return std::move(config_); }

 private:
  const GgufModel& model_;
  std::string prefix_;
  Json config_ = Json::object();
  std::map<std::string, std::string> sources_;
};

}  // namespace tessera
