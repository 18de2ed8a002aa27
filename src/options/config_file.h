// Reads a configuration file, which has flags and their values in YAML or JSON, and converts its values to command-line
// texts.
//
//   model-path: models/demo
//   cuda_graph_bs: [1, 2, 4]      # dashes or underscores; lists also as "1,2,4"
//   disable-radix-cache: true
//   sources: {...}                # written by --print-config, ignored when read
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

// The key under which --print-config says where each value comes from.
inline constexpr std::string_view kSourcesKey = "sources";

struct ConfigEntry {
  std::string key;  // as written in the file
  int line = 0;     // from 1
  Json value;       // null, a scalar, or an array of scalars other than null
};

// Reads a configuration file: JSON if its first character is '{', else YAML. YAML's plain scalars follow the JSON
// schema of YAML 1.2 (`off` is a string). Aliases, tags and several documents are refused. The entries have the order
// of the file. The entry `sources` is left out. Errors name the file and the line. Returns kNotFound or kDataLoss if
// the file cannot be read, and kInvalidArgument for all other errors, including an empty file.
Result<std::vector<ConfigEntry>> read_config_file(const std::string& path);
// Reads the text of a configuration file. The text may have no entries. Errors call the file `name`.
Result<std::vector<ConfigEntry>> read_config_text(const std::string& text, const std::string& name);

// Returns the flag for a key: "--page-size" for "page_size", "page-size" and "--page-size".
std::string flag_of_key(std::string_view key);

// Converts an entry's value to the words that would follow the flag on a command line. Returns no words if the value is
// null. `type` is the type given to CommandFlags::value(), or "" for a switch. If the value has another type, returns
// kInvalidArgument with a message that names the key.
Result<std::vector<std::string>> config_texts(const ConfigEntry& entry, std::string_view type, bool repeatable);
// Does the reverse of config_texts(). Converts the words after a flag on a command line to the value that a
// configuration file would have for the flag. Precondition: the flag accepted the words.
Json config_value(std::span<const std::string> texts, std::string_view type, bool repeatable);

}  // namespace tessera
