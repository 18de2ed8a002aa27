// Holds the rules by which quantisation settings assign a format to each linear. Each exporter spells these settings
// differently, so each spelling has a function that reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/json_fields.h"
#include "tessera/model/formats/name_patterns.h"
#include "tessera/model/formats/weight_formats.h"

namespace tessera {

// A group of linears with the same format.
struct FormatGroup {
  WeightFormat format = {};
  bool every_linear = false;  // if false, the group contains the linears that `modules` names
  NamePatterns modules = {};
};

struct FormatRules {
  std::string method = {};
  std::vector<FormatGroup> groups = {};
  NamePatterns unquantised = {};  // linears that are not quantised, even if a group contains them
  std::optional<KvCacheFormat> kv_cache = std::nullopt;
};

// Each function reads the members of a "quantization_config" in one exporter's spelling.
Result<FormatRules> read_fp8(const Fields& fields);
Result<FormatRules> read_fbgemm_fp8(const Fields& fields);
Result<FormatRules> read_compressed_tensors(const Fields& fields);
Result<FormatRules> read_gptq(const Fields& fields);
Result<FormatRules> read_awq(const Fields& fields);
Result<FormatRules> read_quark(const Fields& fields);
// Reads ModelOpt's settings. `fields` has the members of "quantization_config", and `beside` has the members of
// "quantization" in hf_quant_config.json. One of the two pointers may be null.
Result<FormatRules> read_modelopt(const Fields* fields, const Fields* beside);

// Adds one entry of the module list `key` to `patterns`.
Status add_pattern(const Fields& fields, std::string_view key, std::string_view pattern, NamePatterns& patterns);
// Adds all entries of the module list `key` to `patterns`. The list may be absent.
Status read_modules(const Fields& fields, std::string_view key, NamePatterns& patterns);
// Reads the member `key`, "kv_cache_scheme" or "kv_cache_quant_algo". Its value is a word or an object. The member may
// be absent.
Result<std::optional<KvCacheFormat>> read_kv_cache(const Fields& fields, std::string_view key);
// Reads the "group_size" of int4: 32, 64 or 128. Returns 0 for -1, which means that a group is a whole row.
Result<std::int64_t> read_int4_group(const Fields& fields, std::string_view key);

// Returns the format in which `module` is stored, according to its tensors. The settings assign modules to groups.
// `described` is the format of the module's group, or null if no group contains the module. `settled` is the format
// that the settings give the module after the lists of unquantised modules are applied. `file` names the settings in
// messages.
Result<WeightFormat> stored_format(const FormatRules& rules, const WeightFormat* described, const WeightFormat& settled,
                                   std::string_view module, const StoredTypeOf& stored, const std::string& file);

}  // namespace tessera
