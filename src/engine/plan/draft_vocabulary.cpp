#include "tessera/engine/plan/draft_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/engine/plan/model_texts.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/weights/model_path.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

// Returns the content of the folder's or file's tokenizer.json; empty if it cannot be read.
std::string tokenizer_bytes(const std::string& path) {
  std::error_code error;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file, error)) file /= "tokenizer.json";
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Returns whether both models read equal tokenizer.json files. Returns false if the model is a GGUF file and no option
// names a tokenizer. In that case the model's tokenizer is in the GGUF file, whatever files lie beside it.
Result<bool> have_equal_files(const EngineOptions& options, const std::string& draft_folder) {
  if (options.tokenizer_path.empty() && TRY(find_gguf(options.model_path))) return false;
  const std::string own = options.tokenizer_path.empty() ? model_folder(options.model_path) : options.tokenizer_path;
  const std::string bytes = tokenizer_bytes(own);
  return !bytes.empty() && bytes == tokenizer_bytes(model_folder(draft_folder));
}

Status check_ids(const Tokenizer& model, const Tokenizer& draft) {
  const std::int64_t shared = std::min(model.vocab_size(), draft.vocab_size());
  for (std::int64_t id = 0; id < shared; ++id) {
    const TokenId token(static_cast<std::int32_t>(id));
    const std::optional<std::string_view> own = model.id_to_token(token);
    const std::optional<std::string_view> other = draft.id_to_token(token);
    if (own && other && *own != *other)
      return invalid_argument(
          fmt::format("the draft model has another tokenizer: id {} is \"{}\" in the model's and \"{}\" in the draft's",
                      id, *own, *other));
  }
  return ok_status();
}

}  // namespace

Status check_draft_vocabulary(const EngineOptions& options, const std::string& draft_folder, std::int64_t model_size,
                              std::int64_t draft_size) {
  if (TRY(have_equal_files(options, draft_folder))) return ok_status();
  const std::optional<Tokenizer> model =
      TRY(read_model_tokenizer(options.model_path, options.tokenizer_path, gguf_options(options)));
  const std::optional<Tokenizer> draft = TRY(read_model_tokenizer(draft_folder, {}));
  if (model && draft) return check_ids(*model, *draft);
  if (model_size == draft_size) return ok_status();
  return invalid_argument(fmt::format(
      "vocab_size is {}, but the model has {}; without a tokenizer in both folders, only equal numbers are accepted",
      draft_size, model_size));
}

}  // namespace tessera
