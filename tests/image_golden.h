// A golden checkpoint with images: prompts in which images replace placeholders, and what Hugging Face computes from
// them in float32. golden.safetensors has the embedding rows of each image, so that the language model is tested
// without its tower.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "golden.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/images/image_encoder.h"
#include "tessera/image/patches.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/runner/host_floats.h"

namespace tessera::testing {

struct ImageGolden {
  std::string folder;
  std::string model_path;  // the folder, or the GGUF file of the same model
  std::string projector;   // the GGUF file of the tower; empty in a folder of safetensors
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<TokenId>> greedy;  // the greedy tokens after each prompt
  std::vector<std::vector<PromptImage>> images;
  // The rows of each image, [tokens, hidden size]. The key is the hash of the image's content.
  std::map<Hash128, std::vector<float>> rows;
  SafetensorsFile tensors;

  std::vector<float> floats(const std::string& name) const {
    const StoredTensor* tensor = tensors.find(name);
    std::vector<float> values(tensor->data.size() / sizeof(float));
    std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
    return values;
  }
  std::vector<float> stored_rows(std::size_t i) const { return stored_logits(tensors, i); }
  std::vector<std::int32_t> positions(std::size_t i) const {
    const StoredTensor* tensor = tensors.find("positions_" + std::to_string(i));
    std::vector<std::int32_t> values(tensor->data.size() / sizeof(std::int32_t));
    std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
    return values;
  }
  Request request(std::size_t i) const { return {.prompt = prompts[i], .images = images[i]}; }
};

// Returns an image that has a grid but no pixels. Adds `rows`, which the encoder will return for it, to the golden.
inline PromptImage add_image(ImageGolden& golden, std::int64_t first_token, PatchGrid grid, std::vector<float> rows) {
  Hasher hasher;
  hasher.add(static_cast<std::int64_t>(golden.rows.size()));
  const Patches patches{.grid = grid, .merge_size = 2, .patch_values = 0, .content = hasher.finish()};
  golden.rows[patches.content] = std::move(rows);
  return {.first_token = first_token, .patches = std::make_shared<const Patches>(patches)};
}

// Makes a copy of a golden's folder without end tokens in its config, and returns its path; the copy is deleted when
// the program ends. The config of the larger Qwen2.5-VL checkpoint has transformers' default end token, which is
// outside of its vocabulary, so that no engine would start.
inline std::string without_end_tokens(const std::string& folder) {
  static const test::ScratchDir copy;
  if (std::filesystem::exists(copy.path() + "/config.json")) return copy.path();
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (name != "config.json" && name != "generation_config.json")
      std::filesystem::create_symlink(file.path(), copy.path() + "/" + name);
  }
  Json config = *Json::read_file(folder + "/config.json");
  Json text = *config.find("text_config");
  text.set("eos_token_id", Json());
  config.set("text_config", std::move(text));
  copy.write("config.json", config.dump());
  return copy.path();
}

// Reads a golden. "gguf/NAME" is the golden NAME with the model in GGUF files (tools/make_gguf_vision_goldens.py).
inline ImageGolden read_image_golden(const std::string& whole_name) {
  const bool gguf = whole_name.starts_with("gguf/");
  const std::string name = gguf ? whole_name.substr(std::string_view("gguf/").size()) : whole_name;
  const std::string folder = name == "shared/qwen2.5-vl" ? without_end_tokens(golden_path(name)) : golden_path(name);
  const Json json = *Json::read_file(folder + "/golden.json");
  const Json config = *Json::read_file(folder + "/config.json");
  const TokenId placeholder(static_cast<std::int32_t>(config.find("image_token_id")->as_int()));
  const std::int64_t hidden = config.find("text_config")->find("hidden_size")->as_int();
  ImageGolden golden{.folder = folder,
                     .model_path = gguf ? data_path(whole_name) + "/golden-BF16.gguf" : folder,
                     .projector = gguf ? data_path(whole_name) + "/mmproj-golden-BF16.gguf" : "",
                     .prompts = {},
                     .greedy = {},
                     .images = {},
                     .rows = {},
                     .tensors = *SafetensorsFile::open(folder + "/golden.safetensors")};
  for (const Json& one : json.find("cases")->as_array()) {
    const std::size_t i = golden.prompts.size();
    const std::vector<TokenId>& prompt = golden.prompts.emplace_back(ids_of(*one.find("input_ids")));
    golden.greedy.push_back(ids_of(*one.find("greedy")));
    const std::vector<float> all = golden.floats("image_embeds_" + std::to_string(i));
    auto row = all.begin();
    auto token = prompt.begin();
    std::vector<PromptImage>& images = golden.images.emplace_back();
    for (const Json& grid : one.find("image_grid_thw")->as_array()) {
      const PatchGrid of{.t = static_cast<std::int32_t>(grid.as_array()[0].as_int()),
                         .h = static_cast<std::int32_t>(grid.as_array()[1].as_int()),
                         .w = static_cast<std::int32_t>(grid.as_array()[2].as_int())};
      token = std::find(token, prompt.end(), placeholder);
      const auto end = row + of.tokens(2) * hidden;
      images.push_back(add_image(golden, token - prompt.begin(), of, {row, end}));
      row = end;
      token += of.tokens(2);
    }
  }
  return golden;
}

// Returns the golden rows instead of a tower's rows, and counts the calls.
class GoldenEncoder final : public ImageEncoder {
 public:
  GoldenEncoder(const ImageGolden& golden, ir::DType dtype) : golden_(golden), dtype_(dtype) {}

  Status check(const Patches&) const override { return refusal == nullptr ? ok_status() : invalid_argument(refusal); }

  Status encode(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows, DeviceAddress rows,
                Stream& stream) override {
    if (failure != nullptr) return internal_error(failure);
    for (std::size_t i = 0; i < images.size(); ++i) {
      const std::vector<float>& values = golden_.rows.at(images[i]->content);
      const std::size_t row_bytes =
          values.size() / static_cast<std::size_t>(images[i]->tokens()) * ir::dtype_size(dtype_);
      std::vector<std::byte> bytes(values.size() * ir::dtype_size(dtype_));
      TRY(narrow_floats(values, dtype_, bytes.data()));
      TRY(stream.upload(rows + static_cast<std::size_t>(first_rows[i]) * row_bytes, bytes.data(), bytes.size()));
      ++encoded;
    }
    TRY(stream.synchronize());
    return ok_status();
  }

  int encoded = 0;
  const char* failure = nullptr;  // error that encode() returns
  const char* refusal = nullptr;  // error that check() returns

 private:
  const ImageGolden& golden_;
  ir::DType dtype_;
};

}  // namespace tessera::testing
