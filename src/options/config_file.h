// A configuration file: flags and their values as YAML or JSON, and how values stand for the texts of a command line.
//
//   model-path: models/demo
//   cuda_graph_bs: [1, 2, 4]      # dashes or underscores; lists also as "1,2,4"
//   disable-radix-cache: true
//   sources: {...}                # what --print-config wrote; nobody reads it
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

// The key under which --print-config says where each value is from.
inline constexpr std::string_view kSourcesKey = "sources";

struct ConfigEntry {
  std::string key;  // as it is written
  int line = 0;     // from 1
  Json value;       // null, a scalar, or an array of scalars other than null
};

// JSON where the first character is '{', else YAML, of which plain scalars are read by the JSON schema of YAML 1.2
// (`off` is a string) and aliases, tags and several documents are refused. Entries are in the file's order, without
// `sources`. Errors name file and line: kNotFound and kDataLoss for a file that cannot be read, kInvalidArgument for
// anything else, an empty file included.
Result<std::vector<ConfigEntry>> read_config_file(const std::string& path);
// Reads the text of such a file. `name` stands for the file in errors.
Result<std::vector<ConfigEntry>> read_config_text(const std::string& text, const std::string& name);

// "page_size", "page-size" and "--page-size" are "--page-size".
std::string flag_of_key(std::string_view key);

// The words that a command line would have after the flag; none for null. `type`: as CommandFlags::value() has it, ""
// for a switch. kInvalidArgument for a value of another type, naming the key.
Result<std::vector<std::string>> config_texts(const ConfigEntry& entry, std::string_view type, bool repeatable);
// The value of a configuration file for words of the command line. Precondition: the flag took the texts.
Json config_value(std::span<const std::string> texts, std::string_view type, bool repeatable);

}  // namespace tessera
