// Provides quantisation settings and made-up tensors for the tests of this folder.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tessera/model/formats/weight_formats.h"
#include "tessera/model/test_support.h"

namespace tessera::test {

constexpr std::string_view kLinear = "model.layers.0.self_attn.q_proj";

// Reads `settings` as the "quantization_config" of m/config.json. If `settings` is null, the file has no such member.
inline Result<WeightFormats> try_formats(const char* settings, const char* beside = nullptr) {
  Json config = Json::object();
  if (settings != nullptr) config.set("quantization_config", *Json::parse(settings, "settings"));
  const Json other = beside == nullptr ? Json() : *Json::parse(beside, "beside");
  return WeightFormats::read(config, beside == nullptr ? nullptr : &other, "m/config.json");
}
inline WeightFormats formats_of(const char* settings, const char* beside = nullptr) {
  const Result<WeightFormats> formats = try_formats(settings, beside);
  EXPECT_TRUE(formats.ok()) << formats.status().message();
  return formats.ok() ? *formats : WeightFormats();
}
inline WeightFormat format_of(const WeightFormats& formats, std::string_view module = kLinear,
                              const StoredTypeOf& stored = {}) {
  const Result<WeightFormat> format = formats.of(module, stored);
  EXPECT_TRUE(format.ok()) << format.status().message();
  return format.ok() ? *format : WeightFormat();
}
inline WeightFormat format_of(const char* settings, std::string_view module = kLinear) {
  return format_of(formats_of(settings), module);
}

// The type of each tensor of the linear kLinear. The key is the part of the tensor's name after "<kLinear>.".
using Suffixes = std::map<std::string, StoredDtype>;
inline StoredTypeOf stored_as(Suffixes suffixes) {
  return [suffixes = std::move(suffixes)](std::string_view tensor) -> std::optional<StoredDtype> {
    if (!tensor.starts_with(kLinear) || tensor.size() <= kLinear.size()) return std::nullopt;
    const auto found = suffixes.find(std::string(tensor.substr(kLinear.size() + 1)));
    return found == suffixes.end() ? std::nullopt : std::optional(found->second);
  };
}

// Settings that must be refused, and the expected error.
struct BadSettings {
  const char* settings;
  StatusCode code;
  std::vector<std::string> parts;  // parts of the message
};
inline void expect_refused(const std::vector<BadSettings>& cases) {
  for (const BadSettings& c : cases) {
    SCOPED_TRACE(c.settings);
    expect_error(try_formats(c.settings), c.code, c.parts);
  }
}

}  // namespace tessera::test
