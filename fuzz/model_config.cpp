// Catches: crashes on config.json, generation_config.json and tokenizer_config.json; configurations that are accepted
// although they violate their own limits.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fuzz.h"
#include "tessera/model/config/config.h"
#include "tessera/model/config/generation_config.h"
#include "tessera/model/family.h"
#include "tessera/text/tokenizer_config.h"

using namespace tessera;

namespace {

// A temporary folder. It holds files that the reader opens by the path of their folder, not by their own path.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tessera_fuzz_model_config." + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

void read_tokenizer_config(std::string_view text) {
  static const Folder folder;
  std::ofstream(folder.path / "tokenizer_config.json", std::ios::binary) << text;
  const auto config = TokenizerConfig::load(folder.path);
  if (config.ok() && !config->chat_templates.empty())
    fuzz::require(config->find_template(config->chat_templates.front().name) != nullptr,
                  "a template is found by its name");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  const auto json = Json::parse(text, "config.json");
  if (!json.ok()) return 0;
  read_tokenizer_config(text);
  const auto generation = GenerationConfig::from_json(*json, "generation_config.json");
  const auto config = ModelConfig::from_json(*json, "config.json", built_in_families());
  if (!config.ok()) return 0;
  fuzz::require(config->num_key_value_heads > 0 && config->num_attention_heads % config->num_key_value_heads == 0,
                "KV heads divide the query heads");
  fuzz::require(config->sliding_windows.size() == static_cast<std::size_t>(config->num_hidden_layers),
                "each layer has a window");
  return 0;
}
