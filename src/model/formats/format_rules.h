// The rules that quantisation settings give for all linears, and a reader for each spelling of the settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/model/config/fields.h"
#include "tessera/model/formats/name_patterns.h"
#include "tessera/model/formats/weight_formats.h"

namespace tessera {

// Linears that are stored alike.
struct FormatGroup {
  WeightFormat format = {};
  bool every_linear = false;  // false: the group has the linears that `modules` names
  NamePatterns modules = {};
};

struct FormatRules {
  std::string method = {};
  std::vector<FormatGroup> groups = {};
  NamePatterns plain = {};  // linears that are not quantised, although a group has them
  std::optional<KvCacheFormat> kv_cache = std::nullopt;
};

// Each function reads the members of one "quantization_config".
Result<FormatRules> read_fp8(const Fields& fields);
Result<FormatRules> read_fbgemm_fp8(const Fields& fields);
Result<FormatRules> read_compressed_tensors(const Fields& fields);
Result<FormatRules> read_gptq(const Fields& fields);
Result<FormatRules> read_awq(const Fields& fields);
Result<FormatRules> read_quark(const Fields& fields);
// Reads ModelOpt's settings. `beside` has the members of hf_quant_config.json's "quantization"; either may be null, but
// not both.
Result<FormatRules> read_modelopt(const Fields* fields, const Fields* beside);

// Adds an entry of the list of modules `key` to `patterns`.
Status add_pattern(const Fields& fields, std::string_view key, std::string_view pattern, NamePatterns& patterns);
// Adds the list of modules `key` to `patterns`. The list may be absent.
Status read_modules(const Fields& fields, std::string_view key, NamePatterns& patterns);
// Reads "kv_cache_scheme" or "kv_cache_quant_algo": a word or an object. It may be absent.
Result<std::optional<KvCacheFormat>> read_kv_cache(const Fields& fields, std::string_view key);
// Reads int4's "group_size": 32, 64 or 128, or -1 for 0, which means all columns.
Result<std::int64_t> read_int4_group(const Fields& fields, std::string_view key);

// Returns how `module` is stored, which its tensors show. `described` is the format that the settings give the module
// before their lists of plain modules are applied; null if they give none. `settled` is the format after these lists
// are applied. `file` names the settings in messages.
Result<WeightFormat> stored_format(const FormatRules& rules, const WeightFormat* described, const WeightFormat& settled,
                                   std::string_view module, const StoredTypeOf& stored, const std::string& file);

}  // namespace tessera
